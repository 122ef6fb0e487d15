"""House rules that no linter knows: docstrings, lengths, blanket excepts, unfinished work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("raft", "remoting", "broker", "namesrv", "client", "chaos", "verify", "ledgermq")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
SHADOWS = {"types.py", "queue.py", "codecs.py", "select.py", "signal.py"}

MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def faults_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    faults: list[str] = []
    docstring = ast.get_docstring(tree)
    lines = text.count("\n")
    if not docstring:
        faults.append("no module docstring")
    elif lines > MODULE_LINES_MAX and "lines" not in docstring:
        faults.append(f"{lines} lines, and its docstring does not say why")
    if path.name in SHADOWS:
        faults.append("shadows a module of the standard library")
    faults += [f"unfinished: {word}" for word in UNFINISHED if word in text]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                faults.append(f"{node.name} has {length} lines")
        if isinstance(node, ast.ExceptHandler):
            kind = node.type
            if kind is None or (
                isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"}
            ):
                faults.append(f"line {node.lineno}: blanket except")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_is_tidy(path):
    assert not faults_of(path)


def test_the_rules_can_say_no(tmp_path):
    bad = tmp_path / "queue.py"
    bad.write_text("try:\n    pass\nexcept:\n    pass\n")
    assert len(faults_of(bad)) == 3
