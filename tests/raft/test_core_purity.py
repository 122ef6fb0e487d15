"""The core and its neighbours import nothing that reads clocks, files, sockets or randomness."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import raft

PURE_MODULES = [
    "ballot",
    "changes",
    "config",
    "configurations",
    "core",
    "election_timer",
    "elections",
    "events",
    "following",
    "handover",
    "ids",
    "leadership",
    "membership",
    "messages",
    "outbox",
    "progress",
    "quorum",
    "raft_log",
    "read_rounds",
    "storage",
]
ALLOWED_IMPORTS = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "msgpack",
    "operator",
    "random",
    "typing",
}


@pytest.mark.parametrize("name", PURE_MODULES)
def test_pure_modules_import_only_pure_modules(name: str) -> None:
    [package_path] = raft.__path__
    tree = ast.parse((Path(package_path) / f"{name}.py").read_text(encoding="utf-8"))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")

    allowed = ALLOWED_IMPORTS | {f"raft.{module}" for module in PURE_MODULES}
    assert {module for module in imported if module.split(".")[0] != "collections"} <= allowed


def test_random_is_imported_as_a_type_only() -> None:
    [package_path] = raft.__path__
    tree = ast.parse((Path(package_path) / "core.py").read_text(encoding="utf-8"))
    at_run_time = [
        alias.name
        for statement in tree.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    ]
    assert "Random" not in at_run_time
    assert "random" not in at_run_time
