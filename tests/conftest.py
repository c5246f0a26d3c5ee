"""The reference folder beside the project: present where the project is developed, absent in a plain clone."""

import json
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` next to the project; a test that asks for it is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip(
            "no folder ../shared beside the project: its reference numbers and photographs are missing"
        )
    return SHARED


@pytest.fixture(scope="session")
def golden(shared) -> dict:
    """Values and gradients of the authors' released code, and the published draws and splits."""
    path = shared / "reference" / "golden_losses.json"
    if not path.is_file():
        pytest.skip(
            "../shared/reference/golden_losses.json is missing: the authors' numbers cannot be compared"
        )
    return json.loads(path.read_text())
