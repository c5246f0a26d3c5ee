"""The Python of every page is run as it stands, each page in one namespace, as a reader would paste it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
ONLY_TORCH = """
import sys
allowed = {"torch", "numpy", "spml_core"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        caller = sys._getframe(1)
        while caller and "importlib" in caller.f_code.co_filename:
            caller = caller.f_back
        top = name.partition(".")[0]
        asking = "" if caller is None else caller.f_globals.get("__name__", "").partition(".")[0]
        ours = asking in ("spml_core", "__main__")
        if ours and top not in allowed and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Refuse())
"""


def python_of(page: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (PROJECT / page).read_text(), re.M | re.S))


def execute(code: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_training_loop_of_ones_own_needs_torch_and_numpy_only(tmp_path):
    printed = execute(ONLY_TORCH + python_of("docs/training-loop.md"), tmp_path)
    losses = [float(line.split()[-1]) for line in printed.splitlines()]
    assert len(losses) == 10 and losses[-1] < losses[0]


@pytest.mark.parametrize("room", ["runs", "explore"])
def test_a_missing_extra_is_named_by_the_import_that_needs_it(room, tmp_path):
    code = ONLY_TORCH + (
        f"try:\n    import spml_core.{room}\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    assert "pip install --constraint constraints.txt '.[notebooks]'" in execute(code, tmp_path)
