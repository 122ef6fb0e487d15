"""Planting a bug: a few lines of a product's module are replaced as it is imported.

Place in the data path: `catalogue` names the patches, `worker` plants those of one mutant in a
process of its own before it imports the simulator. Nothing on disk changes, the product has no
switch for any of it, and everybody who imports from the module gets the mutant's.

Invariants:
- a patch fits at exactly one place, else PatchError: a mutant whose source has moved on must be
  looked at again, not run unplanted;
- a module is patched before its first import or not at all;
- byte code caches are neither read nor written for a patched module.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["PatchError", "SourcePatch", "patched_text", "plant", "source_of"]


class PatchError(Exception):
    """The patch does not fit the module as it is now, or came too late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePatch:
    """Whole lines `before` become `after`, both written without the indentation that they share.

    Lines that are only comments are passed over in the source, unless `before` has a comment itself.

    `within` is the dotted name of the class or function in which the lines stand; "" is anywhere.
    """

    module: str
    before: str
    after: str
    within: str = ""


def patched_text(text: str, patch: SourcePatch) -> str:
    """The source with the patch in it. Raises PatchError unless it fits exactly once."""
    lines = text.splitlines()
    low, high = _span(text, patch)
    wanted = textwrap.dedent(patch.before).strip("\n").splitlines()
    # A comment says why and changes nothing: it may stand between the lines of a patch.
    numbers = [
        number
        for number in range(low, high)
        if not lines[number].lstrip().startswith("#") or any("#" in line for line in wanted)
    ]
    code = [lines[number] for number in numbers]
    places = [
        (start, indent)
        for start in range(len(code) - len(wanted) + 1)
        if (indent := _indent_of_match(code, start, wanted)) is not None
    ]
    if len(places) != 1:
        raise PatchError(
            f"{patch.module} {patch.within}: {len(places)} places for\n{patch.before.strip()}"
        )
    start, indent = places[0]
    replacement = textwrap.dedent(patch.after).strip("\n")
    indented = [indent + line if line else line for line in replacement.splitlines()]
    lines[numbers[start] : numbers[start + len(wanted) - 1] + 1] = indented
    return "\n".join(lines) + "\n"


def source_of(module: str) -> Path:
    """The file of a module, without importing the module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise PatchError(f"there is no module {module}")
    return Path(spec.origin)


def plant(patches: Iterable[SourcePatch]) -> None:
    """From here on this process imports the modules patched. Raises PatchError."""
    by_module: dict[str, list[SourcePatch]] = {}
    for patch in patches:
        by_module.setdefault(patch.module, []).append(patch)
    for module, of_module in by_module.items():
        if module in sys.modules:
            raise PatchError(f"{module} was imported before the mutant was planted")
        text = source_of(module).read_text(encoding="utf-8")
        for patch in of_module:
            text = patched_text(text, patch)
        compile(text, module, "exec")
    late = [module for module in by_module if module in sys.modules]
    if late:
        raise PatchError(f"{late} were imported while the patches were looked at")
    sys.meta_path.insert(0, _PatchingFinder(by_module))


class _PatchingFinder(MetaPathFinder):
    def __init__(self, patches: dict[str, list[SourcePatch]]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise PatchError(f"there is no module {fullname}")
        spec.loader = _PatchingLoader(fullname, spec.origin, self._patches[fullname])
        return spec


class _PatchingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, patches: list[SourcePatch]) -> None:
        super().__init__(fullname, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text(encoding="utf-8")
        for patch in self._patches:
            text = patched_text(text, patch)
        return compile(text, self.path, "exec", dont_inherit=True)


def _span(text: str, patch: SourcePatch) -> tuple[int, int]:
    """First line and one past the last, from 0, of what the patch is to stand within."""
    if not patch.within:
        return 0, len(text.splitlines())
    body: list[ast.stmt] = ast.parse(text).body
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None = None
    for name in patch.within.split("."):
        named = [
            item
            for item in body
            if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and item.name == name
        ]
        if len(named) != 1:
            raise PatchError(f"{patch.module} has {len(named)} definitions of {patch.within}")
        node = named[0]
        body = node.body
    assert node is not None
    return node.lineno - 1, node.end_lineno or node.lineno


def _indent_of_match(lines: list[str], start: int, wanted: list[str]) -> str | None:
    """The indentation under which `wanted` stands at `start`; None where it doesn't."""
    first = lines[start]
    if not first.endswith(wanted[0]):
        return None
    indent = first[: len(first) - len(wanted[0])]
    if indent.strip():
        return None
    for line, expected in zip(lines[start : start + len(wanted)], wanted, strict=False):
        if line != (indent + expected if expected else expected):
            return None
    return indent
