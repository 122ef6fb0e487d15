"""Sends while one broker group takes none: a producer that is free to choose goes to another.

Place in the data path: the part `operator` does so once all others have ended, where the cluster
has two broker groups or more. One of them takes its disk for full, and refuses sends with a code
for which RocketMQ's producers try elsewhere; then it has room again.

Invariants: nobody else uses the topic, and rules take it for one of the system's own; what is
expected is expected in calm times alone.

Source: RocketMQ DefaultMQProducerImpl.sendDefaultImpl, DefaultMQProducer.retryResponseCodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.leader_requests import create_topic_command, request_leader
from chaos.workload.parts.common.topic_admin import PERM_READ_WRITE
from chaos.workload.parts.operator.broker_settings import BrokerSettings
from chaos.workload.parts.operator.requests import OperatorRequests
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer, ProducerSettings

__all__ = ["ElsewhereEffects"]

SENDS: Final = 12
QUEUES: Final = 2  # of the topic at each group
TIMEOUT_MS: Final = 3_000
SHOWN_S: Final = 1.5  # brokers look at the disk ten times a second, clients hear of new topics
TOPIC: Final = f"{UNLISTED}operator-elsewhere"
_LEVEL: Final = "diskSpaceWarningLevelRatio"


class ElsewhereEffects:
    """Has the broker group of `settings` take no sends, and sends."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        expectations: Expectations,
        settings: BrokerSettings,
        slot: Slot,
        *,
        groups: Sequence[str],
        full: str,
    ) -> None:
        """`full`: the group of `settings`, one of `groups`."""
        self._context = context
        self._requests = requests
        self._expectations = expectations
        self._settings = settings
        self._slot = slot
        self._groups = groups
        self._full = full

    async def show(self) -> None:
        """Send while the group is full, and once it has room again."""
        began_ns = time.monotonic_ns()
        producer = Producer(
            "operator-producers",
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(
                timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings()
            ),
        )
        try:
            await self._make_topic()
            async with producer:
                if await self._settings.set({_LEVEL: "1"}):
                    await asyncio.sleep(SHOWN_S)
                    await self._send(producer, f"while {self._full} is full", began_ns)
                if await self._settings.set({_LEVEL: "99"}):
                    await asyncio.sleep(SHOWN_S)
                    await self._send(producer, f"once {self._full} has room again", began_ns)
        except ClientError:
            return  # without an answer nothing is compared

    async def _make_topic(self) -> None:
        """Make the topic at every group. Raises ClientError."""
        command = create_topic_command(TOPIC, queues=QUEUES, perm=PERM_READ_WRITE)
        for group in self._groups:
            await request_leader(
                self._requests.instance, group, lambda: command, timeout_ms=TIMEOUT_MS
            )

    async def _send(self, producer: Producer, when: str, began_ns: int) -> None:
        taken = 0
        for number in range(SENDS):
            try:
                await producer.send(Message(topic=TOPIC, body=f"{when} {number}".encode()))
            except ClientError:
                break  # one says enough, and each takes its whole time
            taken += 1
        self._expectations.hold(
            f"sends that are taken {when}",
            expected=SENDS,
            answered=taken,
            topic=TOPIC,
            calm_since=began_ns,
        )
