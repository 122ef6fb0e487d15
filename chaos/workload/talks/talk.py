"""A talk with a broker that a seed draws: requests of every kind that clients and tools send, in
any order, with usual and odd values.

Place in the data path: `campaigns.interop.record_talks` holds talks with a RocketMQ and writes what
it answered to `talks.txt`; `chaos.workload.parts.applications.talks` holds the same talks with the
brokers of a run. What a request takes from earlier answers (a position, a handle) it takes from
those of its talk.

Invariants: those of `talk_desk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.workload.talks.talk_desk import Desk, Requester, Step
from chaos.workload.talks.talk_groups import GroupTalk
from chaos.workload.talks.talk_pops import PopTalk
from chaos.workload.talks.talk_reads import ReadTalk
from chaos.workload.talks.talk_sends import SendTalk

__all__ = ["QUESTIONS", "Talk"]

QUESTIONS: Final = 100


class Talk:
    """The talk of `seed` with a broker of the group `broker_name`. `name` is what no other talk has
    in its names."""

    def __init__(
        self, seed: int, name: str, request: Requester, *, broker_name: str, topic_prefix: str
    ) -> None:
        self.desk = Desk(seed, name, request, broker_name=broker_name, topic_prefix=topic_prefix)

    async def hold(self) -> Sequence[Step]:
        """Send all questions, leave no half undecided, and return the steps. Raises what `request`
        does."""
        desk = self.desk
        sends, groups = SendTalk(desk), GroupTalk(desk)
        kinds = [
            each
            for speaker in (sends, ReadTalk(desk), PopTalk(desk), groups)
            for each in speaker.kinds().items()
        ]
        weights = [weight for _, weight in kinds]
        await groups.make_all()
        for desk.turn in range(1, QUESTIONS + 1):
            ((question, _),) = desk.rng.choices(kinds, weights)
            await question()
        await sends.end_all()
        return desk.steps
