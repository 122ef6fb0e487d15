"""What documents and docstrings point to is there: links, anchors, files, modules, commands.

Read are all Markdown files that git tracks, and the docstrings and comments of all modules. A path
in backticks counts as one where its first part is a folder of this repository; `*` in it matches as
in a shell, and a word in capitals before a suffix stands for whatever a reader puts there. Paths of
a run directory, of a broker's store and of other projects are none of ours.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from ledgermq.cli import app

ROOT = Path(__file__).resolve().parent.parent
_TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split("\0")
_FILES = [name for name in _TRACKED if name] or [
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("**/*") if ".venv" not in path.parts
]
PAGES = sorted(name for name in _FILES if name.endswith(".md"))
MODULES = sorted(name for name in _FILES if name.endswith(".py"))
FOLDERS = {name.split("/")[0] for name in _FILES if "/" in name} | {".ci"}
PACKAGES = {name.split("/")[0] for name in MODULES if name.endswith("/__init__.py")}

_FENCE = re.compile(r"^```.*?^```", re.M | re.S)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.M)
_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')
_PATH = re.compile(r"^(?P<path>[\w.*-]+(?:/[\w.*{},-]+)+/?)$")
_MODULE = re.compile(r"^(?P<name>[a-z_]+(?:\.[a-z_0-9]+)+)(?P<rest>(?:\.[A-Z_]\w*)*)$")
_MAKE = re.compile(r"^make ([a-z][a-z-]+)")
_PYTHON_M = re.compile(r"python -m ([\w.]+)")
_SECTION = re.compile(r"FORMATS(?:\.md)?,? sections? (\d+)")
_DECISION = re.compile(r"\bdecisions? (\d+)\b")


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def anchors_of(name: str) -> frozenset[str]:
    """As the hosts of Markdown make them of headings."""
    text = _FENCE.sub("", text_of(name))
    seen: dict[str, int] = {}
    anchors = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return frozenset(anchors)


def exists(path: str) -> bool:
    """Whether something that is tracked has this path, from the root, `*` and `{a,b}` allowed."""
    choice = re.search(r"\{([^}]*)\}", path)
    if choice:
        return all(
            exists(path[: choice.start()] + part + path[choice.end() :])
            for part in choice.group(1).split(",")
        )
    path = re.sub(r"\b[A-Z]{2,}(?=\.[a-z])", "*", path)  # a placeholder: rules/ID.sql
    pattern = re.escape(path.rstrip("/")).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    matches = re.compile(rf"{pattern}(/.*)?$").match
    return any(matches(name) for name in _FILES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    missing = []
    for target in _LINK.findall(_FENCE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        if not there.exists():
            missing.append(target)
        elif anchor and there.suffix == ".md":
            name = there.resolve().relative_to(ROOT).as_posix()
            if anchor not in anchors_of(name):
                missing.append(target)
    assert not missing


def pointers(text: str) -> Iterator[str]:
    """Paths and modules in backticks that this text names and that are not there."""
    for quoted in _INLINE.findall(text):
        word = quoted.split(" ")[0].partition("::")[0].partition("#")[0]
        as_path = _PATH.match(word)
        if as_path and word.split("/")[0] in FOLDERS:
            if not exists(as_path["path"]) and not exists(as_path["path"] + ".py"):
                yield quoted
            continue
        as_module = _MODULE.match(word)
        if as_module and word.split(".")[0] in PACKAGES and not is_named(as_module["name"]):
            yield quoted


@cache
def is_named(dotted: str) -> bool:
    """Whether it is a module, or a name that a module or one of its classes defines."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        path = "/".join(parts[:count])
        name = next((each for each in (f"{path}.py", f"{path}/__init__.py") if each in _FILES), "")
        if name or exists(path):
            if count == len(parts):
                return True
            return not name or re.search(rf"\b{parts[count]}\b", text_of(name)) is not None
    return False


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    if page == "CHANGELOG.md":  # of what was, too
        return
    assert not list(pointers(_FENCE.sub("", text_of(page))))


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_names_is_there(module: str) -> None:
    assert not list(pointers(text_of(module).replace("``", "")))


@pytest.mark.parametrize("name", [*PAGES, *MODULES])
def test_sections_and_decisions_are_there(name: str) -> None:
    text = text_of(name)
    sections = set(re.findall(r"^## (\d+)\.", text_of("docs/FORMATS.md"), re.M))
    decisions = {str(int(path.name[:4])) for path in (ROOT / "docs/decisions").glob("*.md")}
    assert set(_SECTION.findall(text)) <= sections
    assert set(_DECISION.findall(text)) <= decisions


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_there(page: str) -> None:
    if page == "CHANGELOG.md":
        return
    text = text_of(page)
    targets = set(re.findall(r"^([a-z][a-z-]+):", text_of("Makefile"), re.M))
    made = {match[1] for quoted in _INLINE.findall(text) if (match := _MAKE.match(quoted))}
    assert made <= targets
    ours = {name for name in _PYTHON_M.findall(text) if name.split(".")[0] in FOLDERS}
    assert not [name for name in ours if importlib.util.find_spec(name) is None]
    assert not [name for name in _commands(text) if name not in known_commands()]


def _commands(text: str) -> Iterator[str]:
    """The sub-commands of `ledgermq` that are quoted; `cluster up`, where there are two words."""
    for quoted in _INLINE.findall(text):
        match = re.match(r"(?:\.venv/bin/)?ledgermq ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", quoted)
        if match:
            nested = match[1] in {"cluster", "store", "chaos"} and match[2]
            yield f"{match[1]} {match[2]}" if nested else match[1]


@cache
def known_commands() -> frozenset[str]:
    """The sub-commands of `ledgermq`, with their own."""
    commands: dict[str, object] = getattr(get_command(app), "commands", {})
    nested = {
        f"{name} {inner}"
        for name, command in commands.items()
        for inner in getattr(command, "commands", {})
    }
    return frozenset(commands) | nested
