"""Reference numbers, and the photographs that are kept beside the project where it is developed."""

import json
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


def pytest_addoption(parser):
    parser.addoption(
        "--all-notebooks", action="store_true", help="execute every notebook in full (30 minutes)"
    )
    parser.addoption(
        "--all-seeds", action="store_true", help="train every method in full, on three seeds (25 minutes)"
    )


def pytest_collection_modifyitems(items):
    """Put the longest file first, then those with slow tests, so that no process is left with a long one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_notebooks.py", item.path not in slow))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder `shared` next to the project; tests that need it are skipped if it does not exist."""
    if not SHARED.is_dir():
        pytest.skip("no folder ../shared beside the project: its photographs and label lists are missing")
    return SHARED


@pytest.fixture(scope="session")
def golden() -> dict:
    """Return values and gradients of the authors' released code, and the published draws and splits."""
    return json.loads((Path(__file__).parent / "reference" / "golden_losses.json").read_text())


@pytest.fixture(scope="session")
def golden_more() -> dict:
    """Return values and gradients of released code that takes more than logits, or compares labels with each other."""
    return json.loads((Path(__file__).parent / "reference" / "golden_more.json").read_text())
