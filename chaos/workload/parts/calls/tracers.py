"""A client's background sender of traces, beside what it promises, whatever becomes of the messages
that it sends.

Place in the data path: none; a sender that fails as drawn stands in the place of the tracer's own
producer. What the traces of real clients say, and that none is missing, `traces` looks at where
there is no fault; here there are faults all the time.

Invariants: a record is sent once, in its order, or it is counted in `lost`: because it found no
room, or because its message failed. None waits for longer than the next one's turn, however the
message before it ended; behind `stop` none waits at all.

Source: RocketMQ AsyncTraceDispatcher (queue of 2,048, 100 records in a message, 128,000 bytes).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from chaos.workload.expectations import Expectations
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.trace_records import traces_of
from client.connection.task_scope import TaskScope
from client.errors import ClientError, UnansweredError
from client.message import Message
from client.trace.codec import MessageKind, TraceRecord, TraceSend
from client.trace.tracer import Tracer, TraceSettings

__all__ = ["hold_tracers"]

TRACERS: Final = 6
BURSTS: Final = (1, 4)
BURST_MAX: Final = 30
ROOMS: Final = (5, 20, 2_048)  # records that may wait
BATCHES: Final = (1, 3, 100)
LINGER_MS: Final = (1, 20)
SENDS_S: Final = (0.0, 0.001, 0.02)  # that one message takes
FAILED_SHARES: Final = (0.0, 0.3, 0.6)
LARGE_SHARE: Final = 0.3  # of the tracers have records of which few are a message
LARGE_TEXT: Final = 9_000
PATIENCE_S: Final = 5.0  # for all that was added to be sent or lost, on a slow machine
STOP_MS: Final = 60_000  # more than all that waits takes
POLL_S: Final = 0.02
PAUSE_S: Final = 0.1
BODY_MAX: Final = 128_000
KEYS_MAX: Final = 32_767


async def hold_tracers(expectations: Expectations, rng: random.Random, stop: asyncio.Event) -> None:
    """Have some tracers send, one after the other until `stop`, and hold what became of each
    record."""
    for number in range(TRACERS):
        await _Trial(expectations, rng, number).run(stop)
        if await sleep_until_set(stop, PAUSE_S):
            return


class _Trial:
    def __init__(self, expectations: Expectations, rng: random.Random, number: int) -> None:
        self._expectations = expectations
        self._rng = rng
        self._number = number
        self._settings = TraceSettings(
            waiting_max=rng.choice(ROOMS),
            batch_max=rng.choice(BATCHES),
            linger_ms=rng.choice(LINGER_MS),
        )
        self._is_large = rng.random() < LARGE_SHARE
        self._sender = _FailingSender(rng)
        self._tracer = Tracer(self._sender, self._settings)
        self._added = 0

    async def run(self, stop: asyncio.Event) -> None:
        scope = TaskScope()
        await scope.start()
        await self._tracer.start(scope)
        for _ in range(self._rng.randint(*BURSTS)):
            self._tracer.add([self._record() for _ in range(self._rng.randint(1, BURST_MAX))])
            if self._rng.random() < 0.5:
                await asyncio.sleep(self._rng.choice(SENDS_S))
        if self._rng.random() < 0.5:  # else it is stopped while they wait
            await self._until_gone(stop)
            if not stop.is_set():
                self._hold("sent or lost, with no further one to come")
        await self._tracer.stop(STOP_MS)
        await scope.stop()
        self._hold("sent or lost behind the stop")
        self._expectations.hold(
            f"traces of tracer {self._number} in its messages, how often and in which order",
            expected="once, in their order",
            answered=_order_of(self._sender.begun),
        )
        dropped = self._added - len(self._sender.begun)
        self._expectations.hold(
            f"traces of tracer {self._number} in no message, where all found room",
            expected=0 if self._added <= self._settings.waiting_max else None,
            answered=dropped,
        )
        self._expectations.hold(
            f"messages of tracer {self._number} that are none: too many records, or bytes",
            expected=[],
            answered=[
                wrong
                for message, count in self._sender.messages
                if (wrong := _wrong(message, count, self._settings))
            ],
        )

    async def _until_gone(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PATIENCE_S
        while self._gone() < self._added and loop.time() < end_s:
            if await sleep_until_set(stop, POLL_S):
                return

    def _gone(self) -> int:
        return len(self._sender.sent) + self._tracer.lost

    def _hold(self, what: str) -> None:
        failed, lost = self._sender.failed_records, self._tracer.lost
        room = self._settings.waiting_max
        self._expectations.hold(
            f"traces of tracer {self._number} that are {what}, of {self._added}; {room} may wait,"
            f" {self._settings.batch_max} are a message",
            expected=f"{self._added}, at least {failed} lost",
            answered=f"{self._gone()}, at least {failed if lost >= failed else lost} lost",
        )

    def _record(self) -> TraceRecord:
        number = self._added
        self._added += 1
        text = "x" * LARGE_TEXT if self._is_large else "x"
        return TraceSend(
            time_ms=number,
            region="DefaultRegion",
            group="calls-producers",
            topic="calls",
            msg_id=f"traced-{number}",
            tags=text if self._rng.random() < 0.5 else None,
            keys=(f"{text}-{number}",) if self._rng.random() < 0.5 else (),
            store_host="127.0.0.1:1",
            body_size=1,
            cost_ms=0,
            kind=MessageKind.NORMAL,
            offset_msg_id="0",
            is_success=True,
        )


class _FailingSender:
    """Sends nothing: takes a while, and fails as drawn. `begun` and `sent`: numbers of records, in
    the order in which their sends began and succeeded. Its
    `stop` waits for what is under way, as a producer's does."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failed_share = rng.choice(FAILED_SHARES)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.begun: list[int] = []
        self.sent: list[int] = []
        self.failed_records = 0
        self.messages: list[tuple[Message, int]] = []

    async def start(self) -> None:
        """Connect to nobody."""

    async def stop(self) -> None:
        await self._idle.wait()

    async def crash(self) -> None:
        """Close nothing."""

    async def send(self, message: Message) -> object:
        numbers = [int(trace["time"]) for trace in traces_of(message.body)]
        self.messages.append((message, len(numbers)))
        fails = self._rng.random() < self._failed_share
        self.begun += numbers
        self._under_way += 1
        self._idle.clear()
        try:
            await asyncio.sleep(self._rng.choice(SENDS_S))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        if fails:
            self.failed_records += len(numbers)
            raise self._error()
        self.sent += numbers
        return None

    def _error(self) -> ClientError:
        return UnansweredError("no broker answers")


def _order_of(numbers: Sequence[int]) -> str:
    if len(set(numbers)) < len(numbers):
        return "twice"
    return "once, in their order" if sorted(numbers) == list(numbers) else "in another order"


def _wrong(message: Message, count: int, settings: TraceSettings) -> str | None:
    keys_size = sum(len(key) + 1 for key in message.keys)
    is_too_large = count > 1 and (len(message.body) > BODY_MAX or keys_size > KEYS_MAX)
    if not 0 < count <= settings.batch_max or is_too_large:
        return f"{count} records, {len(message.body)} bytes, {keys_size} of keys"
    return None
