"""Reference numbers, and the photographs that lie beside the project where it is developed."""

import json
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


def pytest_addoption(parser):
    parser.addoption(
        "--all-notebooks", action="store_true", help="execute every notebook in full (20 minutes)"
    )


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` next to the project; a test that asks for it is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("no folder ../shared beside the project: its photographs and label lists are missing")
    return SHARED


@pytest.fixture(scope="session")
def golden() -> dict:
    """Values and gradients of the authors' released code, and the published draws and splits."""
    return json.loads((Path(__file__).parent / "reference" / "golden_losses.json").read_text())


@pytest.fixture(scope="session")
def golden_more() -> dict:
    """Values and gradients of released code that takes more than logits, or compares labels with each other."""
    return json.loads((Path(__file__).parent / "reference" / "golden_more.json").read_text())
