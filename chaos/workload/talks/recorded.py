"""What a RocketMQ answered to the talks of some seeds.

Place in the data path: `campaigns.interop.record_talks` writes `talks.txt`, from a RocketMQ 5.3.3;
whoever holds a talk of one of its seeds compares.

Invariant: a line is one step: seed, number of the question, of the step within it, what it is
about, and what was shown of the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from chaos.workload.talks.talk_answers import shown
from chaos.workload.talks.talk_desk import Desk, Step

__all__ = ["RECORDED", "Told", "otherwise", "recorded_talks", "told_by", "write_talks"]

RECORDED: Final = Path(__file__).parent / "talks.txt"

Told: TypeAlias = Mapping[tuple[int, int], tuple[str, str]]
"""By the question's number and the step's within it: what it is about, and the answer as shown."""


def told_by(desk: Desk, steps: Iterable[Step]) -> Told:
    """Return what a broker told in a talk."""
    counts = Counter[int]()
    told: dict[tuple[int, int], tuple[str, str]] = {}
    for step in steps:
        told[step.turn, counts[step.turn]] = (step.about, shown(desk, step))
        counts[step.turn] += 1
    return told


def write_talks(talks: Mapping[int, Told]) -> None:
    """Write the talks by seed. Raises OSError."""
    lines = [
        "\t".join((str(seed), str(turn), str(number), *told))
        for seed, steps in sorted(talks.items())
        for (turn, number), told in sorted(steps.items())
    ]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="ascii")


@cache
def recorded_talks() -> Mapping[int, Told]:
    """Return the recorded talks by seed. Raises OSError."""
    talks: dict[int, dict[tuple[int, int], tuple[str, str]]] = {}
    for line in RECORDED.read_text(encoding="ascii").splitlines():
        seed, turn, number, about, text = line.split("\t")
        talks.setdefault(int(seed), {})[int(turn), int(number)] = (about, text)
    return talks


def otherwise(expected: Told, told: Told) -> Sequence[str]:
    """Return what was told otherwise than is recorded, one line each, in order."""
    lines = []
    for at in sorted({*expected, *told}):
        one, other = expected.get(at), told.get(at)
        if one != other:
            lines.append(f"{at}: {other} where RocketMQ has {one}")
    return lines
