"""Dependencies run one way (docs/ARCHITECTURE.md), and each room says in its `__init__` which way.

A room is a folder of modules. The line `May import:` of its docstring names the rooms below it, or
whole packages; a sentence `Pure.` there, or in a module's own header, promises no clock and no IO.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "raft",
    "remoting",
    "broker",
    "namesrv",
    "client",
    "toxiproxy",
    "chaos",
    "verify",
    "ledgermq",
)
# Which packages a package's rooms may name at all.
BELOW = {
    "raft": set(),
    "remoting": set(),
    "broker": {"raft", "remoting"},
    "namesrv": {"remoting"},
    "client": {"remoting"},
    "toxiproxy": {"remoting"},
    "chaos": {"raft", "remoting", "broker", "namesrv", "client", "toxiproxy"},
    "verify": set(),
    "ledgermq": set(PACKAGES) - {"ledgermq"},
}
IMPURE_IMPORTS = {"time", "datetime", "asyncio", "os", "pathlib", "secrets", "threading", "uuid"}
_PURE = re.compile(r"\bPure[.:;]|; pure[.;]|\bPure (?:part|parts)\b")
_MAY_IMPORT = re.compile(r"^May import: (.*?)\.$", re.MULTILINE | re.DOTALL)


def dotted(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    dotted(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}
ROOMS = sorted({dotted(path.parent / "__init__.py") for path in MODULES.values()})


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names that a module imports anywhere in it: modules, and names of modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                names.add(full if full in MODULES else module)
    return frozenset(names)


def room_of(name: str) -> str:
    return dotted(MODULES[name].parent / "__init__.py")


def rooms_used(room: str) -> set[str]:
    return {
        room_of(name)
        for path in MODULES.values()
        if dotted(path.parent / "__init__.py") == room
        for name in imported(path)
        if name in MODULES
    } - {room}


def header(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def may_import(room: str) -> set[str]:
    said = _MAY_IMPORT.search(header(MODULES[room]))
    assert said, f"{room}: its __init__ has no line `May import: ...`"
    return set(re.findall(r"`([\w.]+)`", said[1]))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_says_and_no_more(room):
    used = rooms_used(room)
    allowed = may_import(room)
    package = room.split(".", maxsplit=1)[0]
    wrong = {name for name in used if not {name, name.split(".", maxsplit=1)[0]} & allowed}
    assert not wrong, f"{room} imports {sorted(wrong)}"
    assert {name.split(".", maxsplit=1)[0] for name in allowed} - {package} <= BELOW[package]
    unused = {
        name for name in allowed if not any(f"{used_}.".startswith(f"{name}.") for used_ in used)
    }
    assert not unused, f"{room} does not import {sorted(unused)}"


def in_circles(below: dict[str, set[str]]) -> list[str]:
    """Return the names that stay once those that need nothing are taken away, again and again."""
    below = {name: set(used) for name, used in below.items()}
    while leaves := {name for name, used in below.items() if not used}:
        below = {name: used - leaves for name, used in below.items() if name not in leaves}
    return sorted(below)


def test_no_two_rooms_need_each_other():
    assert not in_circles({room: rooms_used(room) for room in ROOMS})


def test_no_two_modules_need_each_other():
    below = {
        name: {used for used in imported(path) if used in MODULES} - {name}
        for name, path in MODULES.items()
    }
    assert not in_circles(below)
    assert in_circles({"a": {"b"}, "b": {"a"}, "c": set()}) == ["a", "b"]


def pure_modules() -> list[str]:
    return [
        name
        for name, path in MODULES.items()
        if _PURE.search(header(path)) or _PURE.search(header(path.parent / "__init__.py"))
    ]


@pytest.mark.parametrize("name", pure_modules())
def test_what_is_called_pure_does_no_io(name):
    wrong = {used.split(".", maxsplit=1)[0] for used in imported(MODULES[name])} & IMPURE_IMPORTS
    assert not wrong, f"{name} imports {sorted(wrong)}"


def test_what_decides_is_pure():
    pure = set(pure_modules())
    assert pure >= {
        "raft.core.core",
        "broker.state.state",
        "namesrv.route_table",
        "raft.peers.wire",
    }


OUTSIDE = ("campaigns", "tests", "benchmarks")
# What is tried knows nothing of what tries it; and programs stand without pytest's tests.
NOT_OF = [(package, OUTSIDE) for package in PACKAGES] + [
    ("benchmarks", ("campaigns", "tests")),
    ("campaigns", ("tests",)),
    ("examples", (*OUTSIDE, *(set(PACKAGES) - {"client"}))),
]


@pytest.mark.parametrize(("folder", "others"), NOT_OF)
def test_what_is_tried_needs_nothing_of_what_tries_it(folder: str, others: tuple[str, ...]) -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in imported(path)
        if name.split(".", maxsplit=1)[0] in others
    }
    assert not wrong


def test_the_rule_can_say_no(tmp_path):
    module = tmp_path / "bad.py"
    module.write_text("def f():\n    from chaos.recording import history\n    import time\n")
    assert imported(module) == {"chaos.recording.history", "time"}
    assert room_of("chaos.recording.history") == "chaos.recording"
