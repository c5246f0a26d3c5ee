"""The package's structure: which subpackage may import which, and how many modules are in none."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "spml_core"
FLOORS = [
    {"words", "paths"},
    {"losses", "metrics"},
    {"analysis", "methods", "data"},
    {"figures"},
    {"models"},
    {"train"},
    {"runs"},
    {"landscape", "search", "headless", "studies"},
    {"explore"},
    {"cli"},
]  # from the ground up


def modules() -> dict[str, Path]:
    """Dotted name -> file."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports() -> dict[str, set[str]]:
    """Return module -> modules of the package that it imports, at the top or within a function."""
    known = modules()
    found = {}
    for name, file in known.items():
        found[name] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spml_core"):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found[name].add(inner if inner in known else node.module)
    return found


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_imports_point_down():
    floor = {name: n for n, names in enumerate(FLOORS) for name in names}
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if room(name)
        and room(other)
        and floor[room(other)] >= floor[room(name)]
        and room(other) != room(name)
    ]
    assert not wrong


def test_no_import_circle():
    left = imports()
    while left:
        free = [name for name, others in left.items() if not (others - {name}) & set(left)]
        assert free, f"a circle among {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in free}


def test_few_modules_outside_a_room():
    assert len(list(PACKAGE.glob("*.py"))) <= 5
