"""The transaction producer: half message, local transaction, decision, and answers to check-backs.

Place in the data path: a half is sent as any message, marked; the listener runs the local
transaction; END_TRANSACTION reports the decision to the broker group that holds the half; where it
never arrives, the broker checks back (CHECK_TRANSACTION_STATE) and the listener reports the outcome
recorded in its database.

Invariants:
- The local transaction runs only after SEND_OK; any other status of the half is rolled back.
- A decision goes to the leader of the half's broker group, wherever it moves, and may be repeated:
  ledgermq's brokers take the first one and answer a repeated one as done, a contrary one with 604.
  RocketMQ's carry a decision out as often as it comes, until they have written their op record: it
  is sent to them once, as their own clients do, and their check finds out what became of it.
- A check is never answered from memory: the listener is called each time, by a bounded number of
  workers; checks beyond a bounded queue are dropped, since the broker repeats them.

Source: RocketMQ DefaultMQProducerImpl.sendMessageInTransaction, ClientRemotingProcessor. RocketMQ
sends END_TRANSACTION oneway and never learns of its loss; here it is a request by default.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from client.connection.broker_call import call_group, request_once
from client.connection.retry import RetryPolicy
from client.delivery import delivered_message
from client.errors import BrokerUnreachableError, ClientError, MalformedAnswerError, NoRouteError
from client.listener_guard import ListenerGuard, guarded_hooks
from client.message import DeliveredMessage, Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import Producer, ProducerSettings, QueueSelector
from client.trace.codec import TraceEnd
from remoting.connections.connection import Connection
from remoting.errors import RecordError, RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from remoting.records.message import decode_record, parse_offset_msg_id

__all__ = [
    "Decision",
    "EndOutcome",
    "EndResult",
    "HalfMessage",
    "TransactionListener",
    "TransactionObserver",
    "TransactionProducer",
    "TransactionResult",
    "TransactionSettings",
    "half_message",
]

_log = logging.getLogger(__name__)


class Decision(enum.Enum):
    """The decision on a half message."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


_DECISION_BITS: Final = {Decision.COMMIT: 8, Decision.ROLLBACK: 12, Decision.UNKNOWN: 0}
_STATES: Final = {
    Decision.COMMIT: "COMMIT_MESSAGE",
    Decision.ROLLBACK: "ROLLBACK_MESSAGE",
    Decision.UNKNOWN: "UNKNOW",
}
"""RocketMQ's names, its spelling included."""


class EndOutcome(enum.Enum):
    """Outcome of sending a decision: carried out, certainly not carried out, or unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndResult:
    """The result of `end`. `error` is None where the outcome is OK, or INFO of a oneway request.

    `address`: the table address of the node that answered OK.
    """

    outcome: EndOutcome
    error: ClientError | None = None
    address: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """A stored half message, and where. `offset` is its place in the half topic; `checked_by` the
    table address of the broker that checks it back, None of a half that this client sent."""

    topic: str
    broker_name: str
    msg_id: str
    transaction_id: str | None
    offset: int
    commit_log_offset: int
    status: SendStatus
    checked_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """The result of `send_in_transaction`. `end` is None where no decision was sent."""

    send: SendResult
    half: HalfMessage
    decision: Decision
    end: EndResult | None


class TransactionListener(Protocol):
    """The application's side of a transaction."""

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Run the local transaction. UNKNOWN leaves the decision to a later check."""
        ...

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Return how the local transaction of an undecided half ended, from durable storage."""
        ...


class TransactionObserver:
    """Hooks that report each step of a transaction. Times are CLOCK_MONOTONIC, in ns.

    Every hook does nothing by default; hooks are called on the loop and must not block. What one
    raises is logged, and ends nothing.
    """

    def half_sent(
        self,
        message: Message,
        result: SendResult | None,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the end of sending a half: `result` where stored, else `error`."""

    def local_decided(
        self, message: Message, decision: Decision, *, t_invoke: int, t_complete: int
    ) -> None:
        """Report the end of the listener's local transaction."""

    def end_sent(
        self,
        half: HalfMessage,
        decision: Decision,
        result: EndResult,
        *,
        from_check: bool,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the end of sending a decision."""

    def check_received(
        self, message: DeliveredMessage, half: HalfMessage, address: str | None, *, t_invoke: int
    ) -> None:
        """Report a broker's check of a half; `address`: the node's table address, where known."""

    def check_answered(
        self,
        message: DeliveredMessage,
        half: HalfMessage,
        decision: Decision,
        result: EndResult,
        *,
        t_complete: int,
    ) -> None:
        """Report the end of answering a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """`end_oneway` sends decisions without awaiting an answer, as RocketMQ's clients do."""

    end_timeout_ms: int = 3_000
    end_oneway: bool = False
    check_workers: int = 4
    checks_waiting_max: int = 2_000
    producer: ProducerSettings = field(default_factory=ProducerSettings)

    def __post_init__(self) -> None:
        for name in ("end_timeout_ms", "check_workers", "checks_waiting_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


class TransactionProducer(Producer):
    """A producer whose half messages are decided by `listener`.

    `send_in_transaction` does all steps; `send_half` and `end` do them one by one.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        listener: TransactionListener,
        dial: Mapping[str, str] | None = None,
        *,
        settings: TransactionSettings | None = None,
        observer: TransactionObserver | None = None,
    ) -> None:
        self.transaction_settings = settings or TransactionSettings()
        super().__init__(group, name_servers, dial, settings=self.transaction_settings.producer)
        self._listener = listener
        self._observer = guarded_hooks(observer or TransactionObserver())
        self._checks: asyncio.Queue[tuple[DeliveredMessage, HalfMessage]] = asyncio.Queue(
            self.transaction_settings.checks_waiting_max
        )
        self.checks_dropped = 0
        """Checks that were dropped: too many waiting, or malformed."""
        self.instance.listen(RequestCode.CHECK_TRANSACTION_STATE, self._take_check)

    async def start(self) -> None:
        """Start the background work.

        Brokers check halves only once they know this producer, that is once it knows a route: a
        producer that sends nothing yet calls `queues(topic)` first.
        """
        await super().start()
        for number in range(self.transaction_settings.check_workers):
            self.instance.scope.spawn(self._answer_checks(), f"client-check-{number}")

    async def send_in_transaction(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> TransactionResult:
        """Send a half message, run the local transaction, send the decision.

        Raises ClientError where the half was not stored, or this is unknown (if it was stored, the
        broker's check finds it), whatever the listener raises, and TypeError where it returns no
        Decision: then the half stays undecided until the broker checks.
        """
        with self._under_way:
            send = await self._send_half(message, timeout_ms, queue, selector)
            half = half_message(send)
            if send.status is SendStatus.SEND_OK:
                began = time.monotonic_ns()
                decision = _checked(await self._listener.execute_local(message, half))
                self._observer.local_decided(
                    message, decision, t_invoke=began, t_complete=time.monotonic_ns()
                )
            else:
                decision = Decision.ROLLBACK
            end = None
            if decision is not Decision.UNKNOWN:
                end = await self.end(half, decision)
            return TransactionResult(send=send, half=half, decision=decision, end=end)

    async def send_half(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> SendResult:
        """Store a half message; pass `half_message(result)` to `end`. Raises as `send`."""
        with self._under_way:
            return await self._send_half(message, timeout_ms, queue, selector)

    async def _send_half(
        self,
        message: Message,
        timeout_ms: int | None,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
    ) -> SendResult:
        began = time.monotonic_ns()
        try:
            with self._stamped([message]):
                prepared = self._prepare(message, transactional=True)
                result = await self._deliver(prepared, message, timeout_ms, queue, selector)
        except ClientError as error:
            self._observer.half_sent(
                message, None, error, t_invoke=began, t_complete=time.monotonic_ns()
            )
            raise
        self._observer.half_sent(
            message, result, None, t_invoke=began, t_complete=time.monotonic_ns()
        )
        return result

    async def end(
        self,
        half: HalfMessage,
        decision: Decision,
        *,
        from_check: bool = False,
        timeout_ms: int | None = None,
        oneway: bool | None = None,
    ) -> EndResult:
        """Send the decision about a half. Raises no ClientError: the result carries it.

        UNKNOWN is always oneway, since brokers don't answer it; a oneway request that was sent is
        INFO.
        """
        began = time.monotonic_ns()
        as_oneway = self.transaction_settings.end_oneway if oneway is None else oneway
        limit_ms = self.transaction_settings.end_timeout_ms if timeout_ms is None else timeout_ms
        try:
            if as_oneway or decision is Decision.UNKNOWN:
                await self._end_oneway(half, decision, from_check)
                result = EndResult(outcome=EndOutcome.INFO)
            elif (address := self._checking_node(half)) is not None:
                self.instance.check_running()
                command = self._end_command(half, decision, from_check)
                await request_once(self.instance, half.broker_name, address, command, limit_ms)
                result = EndResult(outcome=EndOutcome.OK, address=address)
            else:
                _, address = await call_group(
                    self.instance,
                    half.broker_name,
                    lambda: self._end_command(half, decision, from_check),
                    topic=half.topic,
                    timeout_ms=limit_ms,
                    policy=self._end_policy(half.broker_name, limit_ms),
                )
                result = EndResult(outcome=EndOutcome.OK, address=address)
        except ClientError as error:
            outcome = EndOutcome.FAIL if error.definite else EndOutcome.INFO
            result = EndResult(outcome=outcome, error=error)
        if self._tracer is not None:
            self._tracer.add([self._end_trace(half, decision, from_check)])
        self._observer.end_sent(
            half,
            decision,
            result,
            from_check=from_check,
            t_invoke=began,
            t_complete=time.monotonic_ns(),
        )
        return result

    # Internals.

    def _checking_node(self, half: HalfMessage) -> str | None:
        """Return the node that a check's answer goes to; None for the group's leader. A master of
        RocketMQ checks seconds before the route names it; its own clients answer whoever checks."""
        leader = self.instance.routes.leader(half.broker_name)
        return half.checked_by if leader is not None and leader.goes_by_route else None

    def _end_policy(self, broker_name: str, timeout_ms: int) -> RetryPolicy:
        leader = self.instance.routes.leader(broker_name)
        if leader is None or not leader.goes_by_route:
            return self.settings.retry
        return dataclasses.replace(
            self.settings.retry, attempts_max=1, attempt_timeout_ms=max(1, timeout_ms)
        )

    def _end_trace(self, half: HalfMessage, decision: Decision, from_check: bool) -> TraceEnd:
        leader = self.instance.routes.leader(half.broker_name)
        return TraceEnd(
            time_ms=time.time_ns() // 1_000_000,
            region="DefaultRegion",
            group=self.group,
            topic=half.topic,
            msg_id=half.msg_id,
            tags=None,
            keys=(),
            store_host=(leader and leader.address) or "",
            transaction_id=half.transaction_id or "",
            state=_STATES[decision],
            is_from_check=from_check,
        )

    def _end_command(
        self, half: HalfMessage, decision: Decision, from_check: bool
    ) -> RemotingCommand:
        namespace = self.instance.namespace
        header = EndTransactionRequestHeader(
            producer_group=namespace.wrap(self.group),
            tran_state_table_offset=half.offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=_DECISION_BITS[decision],
            msg_id=half.msg_id,
            from_transaction_check=from_check,
            transaction_id=half.transaction_id,
            topic=namespace.wrap(half.topic),
        )
        fields = header.to_ext_fields()
        fields["bname"] = half.broker_name
        return RemotingCommand(code=RequestCode.END_TRANSACTION, ext_fields=fields)

    async def _end_oneway(self, half: HalfMessage, decision: Decision, from_check: bool) -> None:
        self.instance.check_running()
        leader = self.instance.routes.leader(half.broker_name)
        address = self._checking_node(half) or (None if leader is None else leader.address)
        if address is None:
            raise NoRouteError(f"no node of broker group {half.broker_name} is known")
        command = self._end_command(half, decision, from_check)
        try:
            await self.instance.rpc.oneway(address, command)
        except RemotingError as error:
            raise BrokerUnreachableError(f"broker {address}: {error}") from error

    def _take_check(self, connection: Connection, command: RemotingCommand) -> None:
        """Queue a broker's check; it is oneway, so this connection gets no answer."""
        try:
            header = CheckTransactionStateRequestHeader.from_ext_fields(command.ext_fields)
            record = decode_record(command.body)
            broker_name = header.broker_name or self._broker_name(connection)
            topic = self.instance.namespace.unwrap(record.topic)
            queue = MessageQueue(topic, broker_name, record.queue_id)
            message = delivered_message(record, queue, self.instance.namespace)
        except (RemotingError, NoRouteError) as error:
            self.checks_dropped += 1
            _log.warning("a transaction check from %s can't be read: %s", connection.peer, error)
            return
        address = self.instance.address_of(connection)
        if address is not None and self.instance.routes.broker_name_of(address) == broker_name:
            # Only a leader checks: the answer is for it, whoever answered this client last.
            self.instance.routes.confirm(broker_name, address)
        half = HalfMessage(
            topic=topic,
            broker_name=broker_name,
            msg_id=header.msg_id or message.uniq_key,
            transaction_id=header.transaction_id,
            offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            status=SendStatus.SEND_OK,
            checked_by=address,
        )
        try:
            self._checks.put_nowait((message, half))
        except asyncio.QueueFull:
            self.checks_dropped += 1
            return
        self._observer.check_received(message, half, address, t_invoke=time.monotonic_ns())

    def _broker_name(self, connection: Connection) -> str:
        address = self.instance.address_of(connection)
        name = None if address is None else self.instance.routes.broker_name_of(address)
        if name is None:
            raise NoRouteError(f"{connection.peer} belongs to no broker group known here")
        return name

    async def _answer_checks(self) -> None:
        while True:
            message, half = await self._checks.get()
            returned: Decision | None = None
            with ListenerGuard(f"the broker will ask again about {half.msg_id}") as guard:
                returned = await self._listener.check_local(message)
            # A listener that fails leaves UNKNOWN, and the broker checks again.
            decision = guard.verdict(returned, Decision.UNKNOWN)
            result = EndResult(outcome=EndOutcome.INFO)
            try:
                result = await self.end(half, decision, from_check=True)
            finally:
                self._observer.check_answered(
                    message, half, decision, result, t_complete=time.monotonic_ns()
                )


def half_message(result: SendResult) -> HalfMessage:
    """Return the half that `send_half` stored. Raises MalformedAnswerError for a bad id."""
    try:
        _, _, commit_log_offset = parse_offset_msg_id(result.offset_msg_id)
    except RecordError as error:
        raise MalformedAnswerError(f"half message stored by {result.address}: {error}") from error
    return HalfMessage(
        topic=result.queue.topic,
        broker_name=result.queue.broker_name,
        msg_id=result.msg_id,
        transaction_id=result.transaction_id,
        offset=result.queue_offset,
        commit_log_offset=commit_log_offset,
        status=result.status,
    )


def _checked(decision: object) -> Decision:
    if not isinstance(decision, Decision):
        raise TypeError(f"execute_local returned {decision!r}, which is no Decision")
    return decision
