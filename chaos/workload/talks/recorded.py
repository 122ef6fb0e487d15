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

__all__ = ["RECORDED", "Answers", "answers_of", "otherwise", "recorded_talks", "write_talks"]

RECORDED: Final = Path(__file__).parent / "talks.txt"

Answers: TypeAlias = Mapping[tuple[int, int], tuple[str, str]]
"""By the question's number and the step's within it: what it is about, and the answer as shown."""


def answers_of(desk: Desk, steps: Iterable[Step]) -> Answers:
    """Return what a broker answered in a talk."""
    counts = Counter[int]()
    answered: dict[tuple[int, int], tuple[str, str]] = {}
    for step in steps:
        answered[step.turn, counts[step.turn]] = (step.about, shown(desk, step))
        counts[step.turn] += 1
    return answered


def write_talks(talks: Mapping[int, Answers]) -> None:
    """Write the talks by seed. Raises OSError."""
    lines = [
        "\t".join((str(seed), str(turn), str(number), *answered))
        for seed, steps in sorted(talks.items())
        for (turn, number), answered in sorted(steps.items())
    ]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="ascii")


@cache
def recorded_talks() -> Mapping[int, Answers]:
    """Return the recorded talks by seed. Raises OSError."""
    talks: dict[int, dict[tuple[int, int], tuple[str, str]]] = {}
    for line in RECORDED.read_text(encoding="ascii").splitlines():
        seed, turn, number, about, text = line.split("\t")
        talks.setdefault(int(seed), {})[int(turn), int(number)] = (about, text)
    return talks


def otherwise(expected: Answers, answered: Answers) -> Sequence[str]:
    """Return what was answered otherwise than recorded, one line each, in order."""
    lines = []
    for at in sorted({*expected, *answered}):
        one, other = expected.get(at), answered.get(at)
        if one != other:
            lines.append(f"{at}: {other} where RocketMQ has {one}")
    return lines
