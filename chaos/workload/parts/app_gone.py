"""Halves whose producers are all gone for longer than brokers would ask for them, and come back.

Place in the data path: `broker.transaction.check_back`. A check that could be sent to nobody is not
one: a half is given up only after `check_max` checks that were sent.

Invariant: the first producers are gone before their halves may be asked for.

Source: docs/DIVERGENCE.md (RocketMQ counts such checks, too); broker.transaction.check_back.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.app_bench import IN_FAULTS, Bench
from client.errors import ClientError
from client.message import DeliveredMessage, Message, SendStatus
from client.produce.transaction_producer import Decision, HalfMessage

__all__ = ["GoneProducers"]

HALVES: Final = 3
SLACK_S: Final = 1.0
CHECK_SLACK_S: Final = 4.0
GIVEN_S: Final = 4.0
WAIT_S_MAX: Final = 16.0  # behind the load, for which no run waits longer
RETRY_S: Final = 0.1


class GoneProducers:
    """The halves, sent at the beginning of the load. `bench` begins anew for what follows."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._halves: dict[str, bytes] = {}
        self._asked: set[str] = set()
        self._sent_s = 0.0

    async def send(self, stop: asyncio.Event) -> None:
        """Send the halves, repeating what is refused, and be gone."""
        producer = self._bench.transactions(self, **IN_FAULTS)
        await producer.start()
        try:
            while len(self._halves) < HALVES and not stop.is_set():
                try:
                    if not self._sent_s:
                        await self._bench.make_topic(1)
                        self._sent_s = asyncio.get_running_loop().time()
                    message = self._bench.message()
                    half = await producer.send_half(message)
                except ClientError:
                    await sleep_until_set(stop, RETRY_S)
                    continue
                if half.status is SendStatus.SEND_OK:
                    self._halves[half.msg_id] = message.body
                    self._sent_s = asyncio.get_running_loop().time()
        finally:
            await producer.crash()

    async def come_back(self) -> None:
        """Start a producer of the group once checks would have ended; hold that it is asked, and
        that what it commits is there. Raises ClientError."""
        bench, settings = self._bench, self._bench.kit.context.scenario.transactions
        interval_s = settings.check_interval_ms / 1000
        gone_s = settings.timeout_ms / 1000 + (settings.check_max + 1) * interval_s + SLACK_S
        wait_s = self._sent_s + gone_s - asyncio.get_running_loop().time()
        if not self._halves or wait_s > WAIT_S_MAX:
            return
        await asyncio.sleep(max(0.0, wait_s))
        async with self._bench.transactions(self, **IN_FAULTS) as producer:
            await producer.queues(bench.topic)
            await bench.becomes(
                f"halves that nobody is asked for, whose producers are back after {gone_s:g} s",
                lambda: len(self._halves.keys() - self._asked),
                expected=0,
                within_s=2 * interval_s + CHECK_SLACK_S,
            )
            (queue,) = await bench.reader.queues(bench.topic)
            shown = {m.body for m in (await bench.reader.pull(queue, 0)).messages}
            end_s = asyncio.get_running_loop().time() + GIVEN_S
            while not shown >= set(self._halves.values()):
                if asyncio.get_running_loop().time() > end_s:
                    break
                await asyncio.sleep(RETRY_S)
                shown = {m.body for m in (await bench.reader.pull(queue, 0)).messages}
        bench.hold(
            "halves that were committed when their producers were back, and are not there",
            expected=0,
            answered=len(set(self._halves.values()) - shown),
        )

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Note that a broker asks, and commit."""
        self._asked.add(message.uniq_key)
        return Decision.COMMIT
