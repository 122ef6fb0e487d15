"""Plants bugs into the processes of a real experiment: brokers, name servers and the laboratory.

Place in the data path: `planted_experiments` starts `ledgermq chaos run` in the environment that
`armed_environment` makes; every Python process below it imports `site/sitecustomize.py` by itself,
which calls `arm_this_process`. The product has no switch for any of it.

Invariants: a process is armed before it imports any of the product's modules, or it ends; the mark
that a bug has acted is in a file before the bug has acted, so that a kill loses none.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from campaigns.mutants.live.catalogue import LIVE_MUTANTS
from campaigns.mutants.live.live_mutant import LiveMutant, Process
from campaigns.mutants.source_patch import plant

__all__ = ["acted", "arm_this_process", "armed_environment"]

ROOT: Final = Path(__file__).resolve().parents[3]
SITE: Final = Path(__file__).resolve().parent / "site"
_NAMES: Final = "LIVE_MUTANTS"
_MARKS: Final = "LIVE_MUTANTS_MARKS"
_SEPARATOR: Final = ";"


def armed_environment(
    environment: Mapping[str, str], mutants: Sequence[LiveMutant], marks: Path
) -> dict[str, str]:
    """What a process is started with so that it and its children have these bugs. `marks` is a
    folder in which a bug that has acted leaves a file."""
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)]),
        _NAMES: _SEPARATOR.join(mutant.name for mutant in mutants),
        _MARKS: str(marks),
    }


def acted(mutants: Sequence[LiveMutant], marks: Path) -> list[str]:
    """Names of those that have acted in some process."""
    there = {path.name for path in marks.iterdir()}
    return [mutant.name for mutant in mutants if _mark_name(mutant.name) in there]


def arm_this_process() -> None:
    """Raises PatchError where a bug does not fit the source, KeyError where there is none such."""
    names = [name for name in os.environ.get(_NAMES, "").split(_SEPARATOR) if name]
    process = _process_of(sys.orig_argv)
    if not names or process is None:
        return
    mutants = [LIVE_MUTANTS[name] for name in names]
    is_planted = _Planted({*names}, Path(os.environ[_MARKS]), _node_of(sys.orig_argv))
    vars(builtins)["planted"] = is_planted
    # Some share a patch.
    plant(dict.fromkeys(patch for mutant in mutants for patch in mutant.patches(process)))


def _process_of(argv: Sequence[str]) -> Process | None:
    """By its command line: `python -m ledgermq broker --config ...`."""
    if "ledgermq" not in argv:
        return None
    words = argv[argv.index("ledgermq") + 1 :]
    match words[:1]:
        case ["broker"]:
            return "broker"
        case ["namesrv"]:
            return "namesrv"
        case ["chaos"]:
            return "laboratory"
    return None


def _node_of(argv: Sequence[str]) -> str:
    """`n1` of a broker whose configuration is `broker-a-n1.toml`; else whatever stands there."""
    return Path(argv[-1]).stem.rpartition("-")[2]


def _mark_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


class _Planted:
    """What patched lines ask before they do wrong."""

    def __init__(self, armed: set[str], marks: Path, node: str) -> None:
        self._armed = armed
        self._marks = marks
        self._node = node
        self._calls: dict[str, int] = {}

    def __call__(
        self, name: str, *, every: int = 1, after: int = 0, nodes: str | None = None
    ) -> bool:
        """Whether to act now: at each `every`-th call behind the first `after`, on one of the
        `nodes` ("n1 n2") where they are named."""
        if name not in self._armed:  # of lines that two bugs share
            return False
        if nodes is not None and self._node not in nodes.split():
            return False
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        if calls <= after or (calls - after) % every:
            return False
        (self._marks / _mark_name(name)).touch()
        return True
