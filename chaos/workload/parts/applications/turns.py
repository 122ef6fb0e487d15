"""Two producers of one group, of which the first never knows what became of its transaction.

Place in the data path: `broker.transaction.check_back` and `broker.request.clients`, which ask the
producers of a group in turn. A half's own producer leaves it undecided whenever it is asked; the
other one, which did not send it, commits.

Invariant: nobody else asks for anything in this group, so that the second check of the half goes to
the producer that had not the first.

Source: RocketMQ ProducerManager.getAvailableChannel (positiveAtomicCounter).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.transaction_producer import Decision, HalfMessage

__all__ = ["CheckedInTurn"]

CHECK_SLACK_S: Final = 3.0
CHECK_S_MAX: Final = 16.0  # what a scenario's broker may take to check twice


class _Listener:
    """Answers a producer's checks, and counts them."""

    def __init__(
        self, decision: Decision, asked: Counter[Decision], shown: list[DeliveredMessage]
    ) -> None:
        self._decision = decision
        self._asked = asked
        self._shown = shown

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Count a check, note the half that it shows, and decide, or not."""
        self._asked[self._decision] += 1
        self._shown.append(message)
        return self._decision


class CheckedInTurn:
    """One half, and the two that may be asked for it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._asked: Counter[Decision] = Counter()
        self._shown: list[DeliveredMessage] = []

    async def run(self) -> None:
        """Leave a half undecided until it is committed. Raises ClientError."""
        bench, settings = self._bench, self._bench.kit.context.scenario.transactions
        check_s = (settings.timeout_ms + 3 * settings.check_interval_ms) / 1000
        if check_s > CHECK_S_MAX or settings.check_max < 2:
            return
        (queue,) = await bench.make_topic(1)
        clueless, deciding = (
            bench.transactions(_Listener(decision, self._asked, self._shown))
            for decision in (Decision.UNKNOWN, Decision.COMMIT)
        )
        async with contextlib.AsyncExitStack() as stack:
            for producer in (clueless, deciding):
                await stack.enter_async_context(producer)
                await producer.send(bench.message())  # knows a route, and is known
            half = bench.message(keys=("one", "two"), tags="red", properties={"mine": "kept"})
            await clueless.send_in_transaction(half)

            async def is_there() -> bool:
                return half.body in [
                    each.body for each in (await bench.reader.pull(queue, 0)).messages
                ]

            await bench.comes(
                "whether a transaction is committed of which one of two producers knows",
                is_there,
                expected=True,
                within_s=check_s + CHECK_SLACK_S,
            )
        self._hold_shown(half, queue)

    def _hold_shown(self, half: Message, queue: MessageQueue) -> None:
        """Hold what the checks have shown: the half as it was sent."""
        shown = {
            (
                each.topic,
                each.queue.topic,
                each.body,
                each.tags,
                tuple(each.keys),
                each.properties.get("mine"),
                each.uniq_key,
            )
            for each in self._shown
        }
        sent = (queue.topic, queue.topic, half.body, "red", half.keys, "kept", half.uniq_key)
        self._bench.hold(
            "what checks show of a half",
            expected=[sent],
            answered=sorted(shown, key=str),
        )
