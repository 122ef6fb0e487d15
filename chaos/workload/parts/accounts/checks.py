"""Checks of transactions where two accounts use one producer group, in the part `accounts`: a check
carries the message, and goes only to those who may send to its topic.

Place in the data path: `broker.transaction.check_back`. An administrator's producer leaves a half
undecided; a user without any right has joined its group. When the broker has had time for several
checks, the half is rolled back by the next one.

Invariants: rules take the topic for one of the system's own; nobody else uses the producer group,
and producers of a group are asked in turn, so that the user would be.

Source: docs/DIVERGENCE.md (transaction checks); RocketMQ ProducerManager.getAvailableChannel; M12.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.accounts.changes import PASSWORD, TIMEOUT_MS, change_at_leader
from chaos.workload.parts.accounts.model import TOPIC
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.leader_requests import create_topic_command, request_leader
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.producer import ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode

__all__ = ["PrivateChecks"]

CHECKS: Final = 2  # for which there is time
CHECK_S_MAX: Final = 16.0  # what a scenario's broker may take for them
SLACK_S: Final = 1.0


class _Listener:
    """Answers a producer's checks, and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.decision = Decision.UNKNOWN

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Count a check, and decide, or not."""
        self.asked += 1
        return self.decision


class PrivateChecks:
    """One half at one broker group, and two producers. `instance`: of an administrator."""

    def __init__(
        self,
        context: WorkContext,
        instance: ClientInstance,
        slot: Slot,
        expectations: Expectations,
        *,
        group: str,
    ) -> None:
        self._context = context
        self._instance = instance
        self._slot = slot
        self._expectations = expectations
        self._group = group
        self._topic = f"{UNLISTED}{TOPIC}-checks-{group}"
        self._user = f"{TOPIC}-joins-{group}"

    async def work(self) -> None:
        """Leave a half undecided for some checks; hold who was asked."""
        settings = self._context.scenario.transactions
        check_s = (settings.timeout_ms + (CHECKS + 1) * settings.check_interval_ms) / 1000
        if check_s > CHECK_S_MAX or settings.check_max <= CHECKS + 1:
            return
        began_ns = time.monotonic_ns()
        own, joined = _Listener(), _Listener()
        try:
            await self._make()
            producers = (
                self._producer(own, self._slot.signer),
                self._producer(joined, Signer(self._user, PASSWORD)),
            )
            async with contextlib.AsyncExitStack() as stack:
                for producer in producers:
                    await stack.enter_async_context(producer)
                    with contextlib.suppress(ClientError):  # the user may not
                        await producer.send(self._message("first"))  # is known with its route
                await producers[0].send_in_transaction(self._message("half"))
                await asyncio.sleep(check_s)
                own.decision = joined.decision = Decision.ROLLBACK
                await asyncio.sleep(2 * settings.check_interval_ms / 1000 + SLACK_S)
            await change_at_leader(
                self._instance, self._group, RequestCode.AUTH_DELETE_USER, None, username=self._user
            )
        except ClientError:
            return  # nobody knows who was asked
        self._expectations.hold(
            f"whether checks of {self._topic} come to its producer, and to one without its right",
            expected="True False",
            answered=f"{own.asked > 0} {joined.asked > 0}",
            topic=TOPIC,
            calm_since=began_ns,
        )

    async def _make(self) -> None:
        """Make the topic and the user. Raises ClientError."""
        command = create_topic_command(self._topic, queues=1, perm=6)
        await request_leader(self._instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS)
        await change_at_leader(
            self._instance,
            self._group,
            RequestCode.AUTH_CREATE_USER,
            {"username": self._user, "password": PASSWORD, "userType": "Normal"},
            username=self._user,
        )

    def _producer(self, listener: _Listener, signer: Signer | None) -> TransactionProducer:
        settings = ProducerSettings(
            timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings(signer)
        )
        return TransactionProducer(
            f"{TOPIC}-checked-{self._group}",
            self._context.name_servers,
            listener,
            self._slot.dial,
            settings=TransactionSettings(producer=settings),
        )

    def _message(self, body: str) -> Message:
        return Message(topic=self._topic, body=body.encode())
