"""Drills of held pulls that messages pass by: a pull waits for one tag, others are sent, and then
one that it wants.

Place in the data path: `drills` makes one with each new group; each has a topic of one queue that
nobody else knows and in no manifest is, and is the only one that sends there.

The model: what stands in the topic. Pull and sends take one connection, so that the pull is the
first to arrive. However many messages came that a held pull does not want, the
first that it wants wakes it, long before its time is up.

Source: RocketMQ PullRequestHoldService (notifyMessageArriving), MessageFilter.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import UNLISTED, Drill, EndedError, Unsure, batch_fields
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.topic_of_drill import make_topic
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["WokenPullDrill"]

ROUNDS: Final = 4
TAGS: Final = ("T0", "T1", "T2")
UNWANTED_MAX: Final = 3
PAUSE_S: Final = (0.02, 0.3)  # before each message
HELD_MS: Final = 5_000
LATE_S: Final = 2.5  # behind the send, on a busy machine, too
_HELD: Final = 2 | 4  # bits of a pull's sysFlag: it waits, and brings what it wants


class WokenPullDrill:
    """One group, which pulls one message after another."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._held = drill.beside(group)
        self._group = group
        self._topic = f"{UNLISTED}{group}-passed"
        self._end = 0
        self._sent_s = 0.0  # when what is wanted was sent, of the loop's clock

    async def run(self) -> None:
        """Hold some pulls, one after another. Raises Unsure, EndedError."""
        await make_topic(self.drill, self._topic)
        for _ in range(ROUNDS):
            await self._hold_one()
        raise Unsure  # another group has a topic of its own

    async def _hold_one(self) -> None:
        rng, loop = self.drill.rng, asyncio.get_running_loop()
        wanted = rng.choice(TAGS)
        unwanted = [tag for tag in TAGS if tag != wanted]
        passed = [rng.choice(unwanted) for _ in range(rng.randint(1, UNWANTED_MAX))]
        begin, woken_by = self._end, self._end + len(passed)
        self._sent_s = float("inf")

        def show(answer: RemotingCommand) -> str:
            late = loop.time() - self._sent_s > LATE_S
            places = [str(record.queue_offset) for record in records_of(answer)]
            return " ".join([str(answer.code), *places, "late" if late else "in time"])

        pull = asyncio.create_task(
            self._held.request(
                f"pull of {wanted} from {begin} of {self._topic}, which {passed} pass by",
                RequestCode.PULL_MESSAGE,
                self._fields(begin, wanted),
                expected=f"0 {woken_by} in time",
                show=show,
                is_calm=True,
                timeout_ms=2 * HELD_MS,
            )
        )
        try:
            for tag in (*passed, wanted):
                if await sleep_until_set(self.drill.ends, rng.uniform(*PAUSE_S)):
                    raise EndedError
                if tag == wanted:
                    self._sent_s = loop.time()
                await self._send(tag)
            await pull
        finally:
            pull.cancel()
            await asyncio.gather(pull, return_exceptions=True)  # whatever it ended with

    async def _send(self, tag: str) -> None:
        item = BatchItem(b"passed", f"{PropertyName.TAGS}\x01{tag}\x02".encode(), 0)
        await self.drill.request(
            f"send {tag} to {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._topic, self.drill.queue.broker_name),
            body=encode_batch_body([item]),
            expected=f"0 {self._end}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('queueOffset')}",
            changes=True,
        )
        self._end += 1

    def _fields(self, offset: int, wanted: str) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self.drill.queue.broker_name,
            "consumerGroup": self._group,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": _HELD,
            "commitOffset": 0,
            "suspendTimeoutMillis": HELD_MS,
            "subVersion": 1,
            "subscription": wanted,
            "expressionType": "TAG",
        }
