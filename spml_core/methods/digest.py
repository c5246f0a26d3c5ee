"""A digest of the code of a method, which is part of the identity of its runs."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
import threading
from functools import cache
from pathlib import Path

from spml_core import losses
from spml_core.methods.base import SHOWN, Method
from spml_core.methods.registry import get

_PARSING = threading.Lock()  # CPython 3.11's parser fails when threads build syntax trees at once


def source_digest(name: str) -> str:
    """Return the SHA-256 of the code a method consists of: its class, the losses it calls, and what these call.

    This includes functions in the user's own modules, but not in other installed packages. Comments, docstrings and
    display attributes (`SHOWN`) do not count. The digest is part of a run's identity, so that editing a loss retrains
    the runs of that loss and no others.
    """
    seen: dict[str, str] = {}
    queue = [cls for cls in get(name).__mro__ if issubclass(cls, Method)]
    while queue:
        item = queue.pop()
        key = f"{item.__module__}.{item.__qualname__}"
        if key in seen:
            continue
        with _PARSING:
            seen[key], names = _code(item)
        here = vars(inspect.getmodule(item))
        modules = [here[name] for name in names if inspect.ismodule(here.get(name))]
        # All of them, since a name may be a function in one and a module in another.
        scopes = (here, vars(losses), *(vars(module) for module in modules if _is_own(module.__name__)))
        found = [scope.get(name) for name in names for scope in scopes]
        queue += [f for f in found if inspect.isfunction(f) and _counts(f, item)]
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _counts(function, caller) -> bool:
    module = function.__module__
    return module.startswith(losses.__name__) or module == caller.__module__ or _is_own(module)


def _is_own(module: str) -> bool:
    """Return whether a module is the user's: not of this package, not of Python, and not installed."""
    if module.partition(".")[0] in {"spml_core", *sys.stdlib_module_names}:
        return False
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return not {"site-packages", "dist-packages"} & {*file.parts}


@cache  # a changed function is a new object
def _code(item) -> tuple[str, frozenset[str]]:
    """Return the code of a class or function, without the parts that do not count, and the names in it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(item)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not _is_shown(part)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    return ast.unparse(tree), frozenset(n.id if isinstance(n, ast.Name) else n.attr for n in nodes)


def _is_shown(node: ast.stmt) -> bool:
    """Return whether a statement of a class concerns only how the method is shown."""
    if isinstance(node, ast.FunctionDef):
        return node.name in SHOWN
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = {
        part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)
    }
    return bool(names) and names <= SHOWN
