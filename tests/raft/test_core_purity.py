"""The core draws from nothing but the randomness that it is given, and imports only what is pure.

That no room below it reads clocks or files is `tests/test_layering.py`'s; this is stricter.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import raft.core

_RAFT = Path(raft.core.__path__[0]).parent
_CORE = sorted(path.relative_to(_RAFT).as_posix() for path in (_RAFT / "core").glob("*.py"))
VOCABULARY = ["config", "events", "ids", "membership", "messages", "storage"]
ALLOWED_IMPORTS = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "msgpack",
    "msgspec",
    "operator",
    "random",
    "typing",
}


def _tree(name: str) -> ast.Module:
    return ast.parse((_RAFT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*_CORE, *(f"{name}.py" for name in VOCABULARY)])
def test_what_the_core_is_made_of_imports_only_its_like(name: str) -> None:
    imported: set[str] = set()
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    core = {f"raft.{path.removesuffix('.py').replace('/', '.')}" for path in _CORE}
    allowed = ALLOWED_IMPORTS | core | {f"raft.{name}" for name in VOCABULARY}
    assert {module for module in imported if module.split(".")[0] != "collections"} <= allowed


@pytest.mark.parametrize("name", _CORE)
def test_random_is_imported_as_a_type_only(name: str) -> None:
    at_run_time = [
        alias.name
        for statement in _tree(name).body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    ]
    assert not {"Random", "random"} & set(at_run_time)
