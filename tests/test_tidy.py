"""House rules that no linter knows: docstrings, lengths, blanket excepts, unfinished work.

And of tests: none imports another, rigs hold none, and all wait by `campaigns.rig.waiting`.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from remoting.records.property_names import PropertyName

ROOT = Path(__file__).resolve().parent.parent
# What is shipped, so that no package is forgotten here.
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
    "build"
]["targets"]["wheel"]["packages"]
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
SHADOWS = {"types.py", "queue.py", "codecs.py", "select.py", "signal.py"}

# Those that can't be mistaken; these two are fields of answers, too.
PROPERTY_NAMES = {
    value for name, value in vars(PropertyName).items() if name.isupper() and "_" in value
} - {"MSG_REGION", "TRACE_ON"}

# Everything else proposes by `broker.request.commit`: one place says what comes of a proposal.
PROPOSING = {"commit.py", "store_send.py", "plain_send.py"}

MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


TESTS = sorted((ROOT / "tests").rglob("*.py"))
# Its subject is the loop.
WAIT_BY_THEMSELVES = {"tests/sim/test_virtual_loop.py"}


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
    knows_names = path.name != "property_names.py" and "verify" not in path.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and knows_names and node.value in PROPERTY_NAMES:
            faults.append(f"line {node.lineno}: {node.value} is a name of PropertyName")
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "submit"
            and path.name not in PROPOSING
            and ast.unparse(node).endswith("proposer.submit")
        ):
            faults.append(f"line {node.lineno}: proposes, but by `broker.request.commit`")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                faults.append(f"{node.name} has {length} lines")
        if isinstance(node, ast.TryStar):
            faults += [
                f"line {inner.lineno}: raises within except*, and callers get a group"
                for handler in node.handlers
                for inner in ast.walk(handler)
                if isinstance(inner, ast.Raise)
            ]
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


def faults_of_test(path: Path) -> list[str]:
    faults: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            imported = []
        faults += [
            f"line {node.lineno}: imports {name}, a module of tests"
            for name in imported
            if name.startswith("tests.") and ".test_" in name
        ]
        if isinstance(node, ast.Call) and ast.unparse(node) == "asyncio.sleep(0)":
            faults.append(f"line {node.lineno}: waits without `turns` or `until`")
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and not path.name.startswith("test_")
        ):
            faults.append(f"line {node.lineno}: {node.name} is in a module that pytest leaves out")
    return faults


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_are_tidy(path):
    if path.relative_to(ROOT).as_posix() not in WAIT_BY_THEMSELVES:
        assert not faults_of_test(path)


def test_the_rules_can_say_no(tmp_path):
    bad = tmp_path / "queue.py"
    bad.write_text("try:\n    a.proposer.submit(b)\nexcept:\n    'UNIQ_KEY'\n")
    assert len(faults_of(bad)) == 5
    bad.write_text("try:\n    a()\nexcept* KeyError:\n    raise ValueError\n")
    assert len(faults_of(bad)) == 3
    rig = tmp_path / "rig.py"
    rig.write_text(
        "from tests.a.test_b import c\nasync def test_d():\n    await asyncio.sleep(0)\n"
    )
    assert len(faults_of_test(rig)) == 3
