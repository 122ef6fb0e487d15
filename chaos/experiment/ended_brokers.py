"""Brokers that ended by an error of their own: what their outputs say.

Place in the data path: `chaos.experiment.experiment` asks when a cluster did not come back once all
faults were healed. Where its brokers have ended by a mistake in their code that is what the run
shows, not a failure of the laboratory: they are left behind, and the run is judged (A17).

Invariant: an error of the disk, or one that a broker raises on purpose to stop, is no mistake.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.cluster.layout import BrokerPlace
from chaos.systems.base import System

__all__ = ["ended_by_mistake"]

_ENDED: Final = "ended: "
_MISTAKES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


def ended_by_mistake(system: System, run: Path) -> list[tuple[BrokerPlace, str]]:
    """Return the brokers that are gone, and whose last words are such an error, each with it."""
    if system.processes is None:
        return []
    found = []
    for place in system.layout.brokers:
        if system.processes.state(place.name) == "gone":
            words = _last_words(run / "output" / f"{place.name}.log")
            if words is not None and _is_mistake(words):
                found.append((place, words))
    return found


def _last_words(output: Path) -> str | None:
    lines: Sequence[str] = []
    if output.is_file():
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    ended = [line for line in lines if line.startswith(_ENDED)]
    return ended[-1].removeprefix(_ENDED) if ended else None


def _is_mistake(words: str) -> bool:
    kind = getattr(builtins, words.partition(":")[0], None)
    return isinstance(kind, type) and issubclass(kind, _MISTAKES)
