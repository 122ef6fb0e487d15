"""A half that asks brokers to leave it alone for a while, and when they check it first.

Place in the data path: `broker.transaction.check_back`, and the property by which a half says for
how many seconds nobody is to be asked, longer than brokers wait anyway.

Invariant: the time counts from when the half was stored, so that it is checked in the next round of
checks behind that, before brokers would have waited once more. Whether halves are checked too early
T18 judges of the transactional senders.

Source: RocketMQ TransactionalMessageServiceImpl (CHECK_IMMUNITY_TIME_IN_SECONDS); rule M12.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.message import DeliveredMessage, Message, PropertyName
from client.produce.transaction_producer import Decision, HalfMessage, half_message

__all__ = ["ImmuneHalf"]

BEYOND_S: Final = 1  # what brokers wait anyway
IMMUNE_S_MAX: Final = 16
ROUND_S: Final = 0.5  # that a round of checks may take


class _Listener:
    """Knows of no transaction, and notes that it was asked."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Leave it undecided."""
        self.is_asked.set()
        return Decision.UNKNOWN


class ImmuneHalf:
    """One half, which is rolled back behind its first check."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Send the half, and hold when its producer is asked for it. Raises ClientError."""
        bench, settings = self._bench, self._bench.kit.context.scenario.transactions
        waits_s, every_s = settings.timeout_ms / 1000, settings.check_interval_ms / 1000
        immune_s = int(waits_s) + BEYOND_S
        if immune_s > IMMUNE_S_MAX:
            return
        await bench.make_topic(1)
        listener = _Listener()
        async with bench.transactions(listener) as producer:
            await producer.send(bench.message())  # knows a route, and is known
            immune = {PropertyName.CHECK_IMMUNITY_TIME: str(immune_s)}
            sent = await producer.send_half(bench.message(properties=immune))
            await bench.becomes(
                f"whether a half that is immune for {immune_s} s is checked",
                listener.is_asked.is_set,
                expected=True,
                within_s=immune_s + every_s + ROUND_S,
            )
            await producer.end(half_message(sent), Decision.ROLLBACK)
