"""Talks with a broker beside what a RocketMQ answered to the same requests.

Place in the data path: `chaos.workload.talks`, whose requests go to one broker group's leader as
they are. What every other drill expects its author has thought of; this one expects what RocketMQ
does, also where nobody has thought of it.

Invariants: a talk is judged where there was no fault since it began; only the first answer that is
otherwise is reported, with what was to come, since what follows may come of it.

Source: RocketMQ 5.3.3, recorded by `campaigns.interop.record_talks`.
"""

from __future__ import annotations

from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.talks.recorded import Answers, answers_of, recorded_talks
from chaos.workload.talks.talk import Talk
from remoting.protocol.command import RemotingCommand

__all__ = ["RecordedTalks"]

TALKS: Final = 3


class RecordedTalks:
    """Holds some of the recorded talks, one after the other."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Hold the talks. Raises ClientError."""
        talks = recorded_talks()
        for seed in self._bench.rng.sample(sorted(talks), TALKS):
            await self._hold(seed, talks[seed])

    async def _hold(self, seed: int, expected: Answers) -> None:
        bench = self._bench
        talk = Talk(
            seed,
            f"{bench.name}-{seed}",
            self._request,
            broker_name=bench.broker_group,
            topic_prefix=UNLISTED,
        )
        answers = answers_of(talk.desk, await talk.hold())
        for at in sorted({*expected, *answers}):
            about, shown = expected.get(at, ("nothing", ""))
            answered_about, answered = answers.get(at, ("nothing", ""))
            is_otherwise = (about, shown) != (answered_about, answered)
            bench.hold(
                f"{about} in talk {seed}, question {at}, as RocketMQ answers",
                expected=_text(about, shown),
                answered=_text(answered_about, answered),
            )
            if is_otherwise:
                return

    async def _request(self, command: RemotingCommand) -> RemotingCommand:
        return await self._bench.request_verbatim(command)


def _text(about: str, shown: str) -> str:
    return f"{about}: {shown}"
