"""A POP consumer of the part `calls`, as applications use it that pop by tags: from broker groups
in turn, messages of some tags, each acknowledged alone, with others, or given back for a moment.

Place in the data path: `client.consume.pop_consumer`, half of the time through the blocking client;
among the tags that are sent are two of which brokers store the same hash, and one is not wanted.

Invariants: what was acknowledged in time never comes again; what is wanted comes until it was.
Pops of this group are no operations of the history: it wants only a part of its topic.

Source: RocketMQ PopConsumer; String.hashCode of "Aa" and "BB".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.calls.sender import TWIN_TAGS, Sent
from chaos.workload.parts.common.part import PartKit
from chaos.workload.same_loop import BLOCKING_SHARE, through_blocking
from client.blocking.sync_clients import SyncPopConsumer
from client.connection.heartbeat import ExpressionType
from client.connection.retry import RetryPolicy
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings, PoppedMessage
from client.errors import ClientError

__all__ = ["GROUP", "Popper"]

GROUP: Final = "calls-popper"
TAGS: Final = frozenset({"T1", TWIN_TAGS[0]})
EXPRESSIONS: Final = (
    (ExpressionType.TAG, " || ".join(sorted(TAGS))),
    (ExpressionType.SQL92, f"TAGS in ({', '.join(repr(tag) for tag in sorted(TAGS))})"),
)
COUNTS: Final = (1, 4, 32)
INVISIBLE_MS: Final = 5_000
SURE_SHARE: Final = 0.8  # of that time: clocks of brokers run at rates of their own
BACK_MS: Final = 300  # after which a message that is given back comes again
BACK_SHARE: Final = 0.15
POLL_MS: Final = 500
TIMEOUT_MS: Final = 3_000
PAUSE_S: Final = 0.1


class Popper:
    """The consumer, from the beginning of the load to the end of the drain."""

    def __init__(self, kit: PartKit, slot: Slot, sent: Mapping[str, Sent], *, topic: str) -> None:
        self._kit = kit
        self._slot = slot
        self._sent = sent
        self._topic = topic
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._acked: set[str] = set()
        self._unsure: set[str] = set()  # of which nobody knows whether they were acknowledged

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """It is owed a part of its topic."""
        row = {"kind": "cluster", "at_least_once": False, "ordered": False, "topics": [self._topic]}
        return {GROUP: row}

    def missing(self) -> set[str]:
        """Return what is wanted and was not acknowledged yet."""
        wanted = {value for value, each in self._sent.items() if each.message.tags in TAGS}
        return wanted - self._acked - self._unsure

    async def run(self, drained: asyncio.Event) -> None:
        """Pop until `drained`, and hold then what was popped against what was sent."""
        client = self._slot.next_client()
        expectations = Expectations(self._kit.context.history, client=client, client_group=GROUP)
        consumer = PopConsumer(
            GROUP,
            self._kit.context.name_servers,
            self._slot.dial,
            settings=PopConsumerSettings(
                timeout_ms=TIMEOUT_MS,
                retry=RetryPolicy(attempts_max=1),
                instance=self._slot.instance_settings(),
            ),
        )
        if self._rng.random() < BLOCKING_SHARE:
            consumer = through_blocking(consumer, SyncPopConsumer)
        await consumer.start()
        try:
            while not drained.is_set():
                try:
                    await self._pop(consumer, expectations)
                except ClientError:  # no leader, or a change of unknown outcome
                    await sleep_until_set(drained, PAUSE_S)
        finally:
            await consumer.stop()
        expectations.hold(
            "messages of wanted tags that were not popped",
            expected="none",
            answered=", ".join(sorted(self.missing())) or "none",
            topic=self._topic,
        )

    async def _pop(self, consumer: PopConsumer, expectations: Expectations) -> None:
        """Pop once and acknowledge what came. Raises ClientError."""
        kind, expression = self._rng.choice(EXPRESSIONS)
        sure_until_s = asyncio.get_running_loop().time() + SURE_SHARE * INVISIBLE_MS / 1000
        popped = await consumer.pop(
            self._topic,
            count_max=self._rng.choice(COUNTS),
            invisible_ms=INVISIBLE_MS,
            poll_ms=POLL_MS,
            expression=expression,
            kind=kind,
        )
        if not popped:
            return
        # Where there are several broker groups, a send that is repeated may be stored at two.
        is_once = self._kit.context.scenario.cluster.groups == 1
        again = sum(_value(each) in self._acked for each in popped)
        for question, expected, count in (
            ("of another tag", 0, sum(_is_strange(each, kind) for each in popped)),
            ("again, though acknowledged", 0 if is_once else None, again),
        ):
            expectations.hold(
                f"messages that were popped {question}",
                expected=expected,
                answered=count,
                topic=self._topic,
            )
        left = [each for each in popped if not await self._give_back(consumer, each)]
        await self._acknowledge(consumer, left, sure_until_s)

    async def _give_back(self, consumer: PopConsumer, popped: PoppedMessage) -> bool:
        """Draw whether it comes again soon. Raises ClientError."""
        if self._rng.random() >= BACK_SHARE:
            return False
        await consumer.change_invisible(popped, BACK_MS)
        return True

    async def _acknowledge(
        self, consumer: PopConsumer, popped: Sequence[PoppedMessage], sure_until_s: float
    ) -> None:
        """Acknowledge messages, together or one by one. Raises ClientError."""
        together = len(popped) > 1 and self._rng.random() < 0.5
        for some in [popped] if together else [[each] for each in popped]:
            values = {_value(each) for each in some}
            self._unsure |= values
            if together:
                await consumer.ack_all(some)
            else:
                await consumer.ack(some[0])
            if asyncio.get_running_loop().time() < sure_until_s:
                self._acked |= values


def _is_strange(popped: PoppedMessage, kind: ExpressionType) -> bool:
    """Return whether nobody requested the message. One with a tag of the same hash comes again to
    the whole group, for retries are not filtered, where its acknowledgement has failed; by its tags
    the client leaves it out then, and not by SQL92."""
    message = popped.message
    is_again = kind is ExpressionType.SQL92 and message.reconsume_times > 0
    return message.tags not in TAGS and not (is_again and message.tags in TWIN_TAGS)


def _value(popped: PoppedMessage) -> str:
    return row_of_delivered(popped.message).value
