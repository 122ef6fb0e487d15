"""Plants one random edit into this process, which has imported nothing of the product yet.

Place in the data path: `live/site/sitecustomize.py`, which Python imports by itself, calls
`arm_this_process`; `campaign` made the environment.

Invariants: the module is compiled from its edited text and from no cache; that the edited code ran is
in a file before it goes on.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import msgspec

from campaigns.mutants.random.edits import MARK, Edit, edited

__all__ = ["arm_this_process", "armed_environment"]

ROOT: Final = Path(__file__).resolve().parents[3]
SITE: Final = ROOT / "campaigns" / "mutants" / "live" / "site"
_ARMED_BY: Final = "MUTANTS_ARMED_BY"
_EDIT: Final = "RANDOM_MUTANT"
_MODULE: Final = "RANDOM_MUTANT_MODULE"
_EXECUTED: Final = "RANDOM_MUTANT_EXECUTED"
_CPU_S_MAX: Final = 120  # a run takes about ten


def armed_environment(
    environment: Mapping[str, str], module: str, edit: Edit, *, executed: Path
) -> dict[str, str]:
    """Return the environment of a process in which `module` has the edit. `executed` is the file
    that is there once the edited code has run."""
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)]),
        _ARMED_BY: __name__,
        _MODULE: module,
        _EDIT: msgspec.json.encode(edit).decode(),
        _EXECUTED: str(executed),
    }


def arm_this_process() -> None:
    """Raises KeyError where the environment names no edit, ValueError where it does not fit."""
    module, executed = os.environ[_MODULE], Path(os.environ[_EXECUTED])
    edit = msgspec.json.decode(os.environ[_EDIT], type=Edit)
    was_executed = False

    def mark() -> bool:
        nonlocal was_executed
        if not was_executed:
            executed.touch()
            was_executed = True
        return False

    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S_MAX, resource.RLIM_INFINITY))
    vars(builtins)[MARK] = mark
    edited(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"), edit)
    sys.meta_path.insert(0, _Finder(module, edit))


class _Finder(MetaPathFinder):
    def __init__(self, module: str, edit: Edit) -> None:
        self._module = module
        self._edit = edit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._edit)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edit: Edit) -> None:
        super().__init__(fullname, path)
        self._edit = edit

    def get_code(self, fullname: str) -> CodeType:
        text = edited(Path(self.path).read_text(encoding="utf-8"), self._edit)
        return compile(text, self.path, "exec", dont_inherit=True)
