"""Transactions that an application runs by one call of its producer, whose listener may fail.

Place in the data path: processes of `chaos.workload.transactional_sender` run some of their
transactions so; the listener that they share with the broker's checks is here. A call is recorded
as the steps that it takes: half, local, decide.

Invariants: a listener that fails says nothing about its database: what is committed there stays
committed, and is found by a later check; a step is recorded as begun before the client takes it.

Source: RocketMQ's TransactionListener; DefaultMQProducerImpl.sendMessageInTransaction.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from chaos.recording.history import MessageRow
from chaos.workload.actor import Actor, Operation, error_text
from chaos.workload.context import WorkContext
from chaos.workload.decisions import OUTCOMES
from chaos.workload.local_database import LocalDatabase
from chaos.workload.messages import PROPERTY_TX, row_of_message
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer

__all__ = ["DatabaseListener", "DatabaseSilentError", "WholeTransactions"]

FAILING_SHARE: Final = 0.4  # of the local transactions that are run by one call
FAILING_CHECK_SHARE: Final = 0.2

LocalWork = Callable[[HalfMessage], Awaitable[Decision]]


class DatabaseSilentError(Exception):
    """The application's database gave no answer; what it did is not known to the listener."""


class DatabaseListener:
    """Runs the local transactions that `expect` announced, and answers checks from the database.

    `fails`: whether some of its checks fail, as by a database that does not answer.
    """

    def __init__(self, database: LocalDatabase, *, fails: bool, rng: random.Random) -> None:
        self._database = database
        self._fails = fails
        self._rng = rng
        self._works: dict[str, LocalWork] = {}

    def expect(self, uniq_key: str, work: LocalWork) -> None:
        """Run `work` as the local transaction of the message with this UNIQ_KEY."""
        self._works[uniq_key] = work

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return await self._works.pop(message.uniq_key or "")(half)

    async def check_local(self, message: DeliveredMessage) -> Decision:
        tx = message.properties[PROPERTY_TX]
        fails = self._fails and self._rng.random() < FAILING_CHECK_SHARE
        if fails and self._database.may_be_silent(tx):
            raise DatabaseSilentError("no answer to a check")
        return self._database.check(tx)


class WholeTransactions:
    """Runs transactions by one call each, as the process `actor`."""

    def __init__(
        self,
        context: WorkContext,
        producer: TransactionProducer,
        listener: DatabaseListener,
        database: LocalDatabase,
        actor: Actor,
        *,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._producer = producer
        self._listener = listener
        self._database = database
        self._actor = actor
        self._rng = rng

    async def run(self, message: Message, queue: MessageQueue, *, timeout_ms: int) -> None:
        """Run one transaction, whatever becomes of it; the broker's checks find out the rest."""
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        tx = message.properties[PROPERTY_TX]
        decides: list[Operation] = []
        with contextlib.ExitStack() as steps:
            half_step = steps.enter_context(self._operation("half", queue, tx, messages=[row]))

            async def execute(half: HalfMessage) -> Decision:
                half_step.complete("ok", offset=half.offset, status=half.status.value)
                decision = self._execute(tx)
                decide = self._operation("decide", queue, tx, decision=decision.value)
                decides.append(steps.enter_context(decide))
                return decision

            self._listener.expect(message.uniq_key or "", execute)
            try:
                result = await self._producer.send_in_transaction(
                    message, timeout_ms=timeout_ms, queue=queue
                )
            except DatabaseSilentError:
                return  # undecided until the broker checks
            except ClientError as error:
                half_step.failed(error)
                return
            if not decides:  # another status of the half: the client has rolled it back
                half_step.complete("info", status=result.send.status.value)
                return
            assert result.end is not None
            end_result = result.end
            decides[0].complete(
                OUTCOMES[end_result.outcome],
                error=None if end_result.error is None else error_text(end_result.error),
                node=None if end_result.address is None else self._context.node(end_result.address),
            )

    def _execute(self, tx: str) -> Decision:
        """Run the local transaction. Raises DatabaseSilentError, before it or behind it."""
        fails = self._rng.random() < FAILING_SHARE
        if fails and self._rng.random() < 0.5:
            raise DatabaseSilentError("no answer, and no row")
        settings = self._context.scenario.workload
        luck = self._rng.random() * (settings.commit_share + settings.rollback_share)
        wanted = Decision.COMMIT if luck < settings.commit_share else Decision.ROLLBACK
        with self._actor.operation("local", tx=tx) as operation:
            decision = self._database.execute(tx, wanted)
            operation.complete("ok", decision=decision.value)
        if fails:
            raise DatabaseSilentError("no answer, and a row")
        return decision

    def _operation(
        self,
        f: str,
        queue: MessageQueue,
        tx: str,
        *,
        messages: list[MessageRow] | None = None,
        decision: str | None = None,
    ) -> contextlib.AbstractContextManager[Operation]:
        return self._actor.operation(
            f,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            tx=tx,
            messages=messages,
            decision=decision,
        )
