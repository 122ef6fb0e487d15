"""One member of a POP group: pops, acknowledges, changes times, and leaves messages on purpose.

Place in the data path: `client.consume.pop_consumer` through the slot's own proxies; each request
is one operation of the history. `chaos.workload.parts.consumers.pops` makes the members.

What becomes of a popped message is drawn: most are acknowledged at once, alone or with others; some
never, some by a receipt that was used before or that a change has replaced. Some take every member
longer than their time, twice: they are acknowledged as soon as it is over, when another pop may
have them already, whose member takes as long. Some are worked on for longer than their time, which
the member prolongs in time, as often as it has to. In order, a member that leaves a message leaves
those behind it in its queue, too, but now and then skips one and acknowledges those behind it, or
gives one back early, which opens the queue to nobody while it works on the others. Now and then a
member is busy for a while with what it popped.

Invariants: a request is made once, and repeated as an operation of its own, so that a delivery
whose answer was lost is an operation without an answer; `due` is never later than t_invoke plus the
time requested; after `stop` nothing is left on purpose but poison.

Source: the run format (pop, ack, change); RocketMQ issue 7914.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from chaos.recording.history import MessageRow
from chaos.scenario.part_sections import PopsSection
from chaos.workload.actor import Actor, Operation
from chaos.workload.context import WorkContext
from chaos.workload.messages import row_of_delivered
from chaos.workload.namespaces import WireName, wire_name
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.consumers.pop_owed import Owed
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.errors import ClientError

__all__ = ["PopMember", "is_poison"]

ERROR_PAUSE_S: Final = 0.1
ACK_TRIES: Final = 3
RETURN_SLACK_S: Final = 2.0  # how long after its time a message may take to come again
SURE_SHARE: Final = 0.9  # of the time requested: clocks of brokers run at rates of their own
LATE_DELIVERIES: Final = 2  # of what takes longer than its time
_SHORTER: Final = 0.3
_LONGER: Final = 1.5
_PROLONGS_MAX: Final = 2
_AT_WORK: Final = (0.5, 0.7)  # of a time, after which the member prolongs it
_AT_END: Final = 0.85  # of a time, after which work is done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A popped message. `receipt` names its handle in the history; times are the loop's.

    `begun_s`: when its invisible time, `length_s`, was requested.
    """

    popped: PoppedMessage
    row: MessageRow
    receipt: str
    begun_s: float
    length_s: float
    over_at_s: float

    @property
    def sure_until_s(self) -> float:
        return self.begun_s + SURE_SHARE * self.length_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """Messages of one queue that are worked on until `at_s`, and then prolonged or acknowledged."""

    at_s: float
    held: tuple[_Held, ...]
    prolongs: int = 0


class PopMember:
    """The consuming of one client instance. `client` is unique in the run."""

    def __init__(
        self,
        context: WorkContext,
        consumer: PopConsumer,
        client: str,
        *,
        section: PopsSection,
        topic: str,
        brokers: Sequence[str],
        owed: Owed,
        in_order: bool,
        namespace: str,
        rng: random.Random,
    ) -> None:
        self._history = context.history
        self._namespace = namespace
        self._consumer = consumer
        self._client = client
        self._actor = Actor(
            context.history, root=client, client=client, client_group=consumer.group
        )
        self._section = section
        self._topic = topic
        self._brokers = brokers
        self._owed = owed
        self._in_order = in_order
        self._rng = rng
        self._receipts = 0
        self._planned: list[_Planned] = []

    async def run(
        self, stop: asyncio.Event, drained: asyncio.Event, lifetime_s: float | None
    ) -> None:
        """Consume until `drained`; before `stop`, until the lifetime is over."""
        loop = asyncio.get_running_loop()
        end = None if lifetime_s is None else loop.time() + lifetime_s
        turn = self._rng.randrange(len(self._brokers))
        while not drained.is_set() and (end is None or stop.is_set() or loop.time() < end):
            turn += 1
            held = await self._pop(self._brokers[turn % len(self._brokers)])
            if held is None:
                await sleep_until_set(drained, ERROR_PAUSE_S)
            else:
                if held and self._rng.random() < self._section.busy_share:
                    await sleep_until_set(stop, self._rng.random() * self._section.busy_ms / 1000)
                await self._consume(held, careful=stop.is_set())
            await self._go_on_with_planned()
            if not held and not self._section.poll_ms:
                await sleep_until_set(drained, ERROR_PAUSE_S)

    # Popping -----------------------------------------------------------------------------------

    async def _pop(self, broker: str) -> list[_Held] | None:
        """Pop once; return what came, None where no answer did."""
        section, loop = self._section, asyncio.get_running_loop()
        invisible_ms = round(section.invisible_ms * self._rng.uniform(0.8, 1.2))
        self._receipts += 1
        receipt = f"{self._client}/{self._receipts}"
        requested_s = loop.time()
        with self._actor.operation(
            "pop",
            broker_group=broker,
            topic=self._topic,
            ref=receipt,
            due=self._due(invisible_ms),
        ) as operation:
            try:
                popped = await self._consumer.pop(
                    self._topic,
                    count_max=section.count_max,
                    invisible_ms=invisible_ms,
                    poll_ms=self._poll_ms(requested_s),
                    in_order=self._in_order,
                    broker_name=broker,
                )
            except ClientError as error:
                operation.failed(error)
                return None
            rows = [self._row(each) for each in popped]
            operation.complete("ok", messages=rows)
        held = []
        for each, row in zip(popped, rows, strict=True):
            self._owed.delivered(row.value)
            held.append(self._held(each, row, receipt, requested_s, invisible_ms))
        return held

    def _poll_ms(self, now_s: float) -> int:
        """Return how long a pop may be held: until what is planned next is due, at most."""
        due_in_s = min((planned.at_s - now_s for planned in self._planned), default=math.inf)
        return int(max(0.0, min(self._section.poll_ms, 1000 * due_in_s)))

    def _row(self, popped: PoppedMessage) -> MessageRow:
        """Return the row of a message at the place where it is stored: its retry topic's, too,
        whose name is made of two that are in the namespace each."""
        handle = popped.handle
        topic, group = (
            wire_name(self._namespace, name) for name in (self._topic, self._consumer.group)
        )
        return dataclasses.replace(
            row_of_delivered(popped.message),
            topic=WireName(handle.topic_read(topic, group)),
            queue=handle.queue_id,
            offset=handle.offset,
        )

    def _held(
        self,
        popped: PoppedMessage,
        row: MessageRow,
        receipt: str,
        requested_s: float,
        invisible_ms: int,
    ) -> _Held:
        return _Held(
            popped=popped,
            row=row,
            receipt=receipt,
            begun_s=requested_s,
            length_s=invisible_ms / 1000,
            over_at_s=asyncio.get_running_loop().time() + invisible_ms / 1000,
        )

    def _due(self, invisible_ms: int) -> int:
        return self._history.now_ns() + invisible_ms * 1_000_000

    # What becomes of them ----------------------------------------------------------------------

    async def _consume(self, held: Sequence[_Held], *, careful: bool) -> None:
        """Decide on each message; `careful`: leave nothing but poison."""
        together: list[_Held] = []
        left: set[int] = set()  # queues of which a message is left, in order
        if self._in_order and not careful:
            left = await self._shorten_some(held)
        for each in held:
            if self._in_order and each.popped.handle.queue_id in left:
                continue
            fate = self._fate(each, careful=careful)
            if fate == "ack":
                together.append(each)
                continue
            if self._in_order and together:  # those ahead first
                await self._acknowledge_all(together)
                together = []
            if not await self._treat(each, fate) and fate != "skip":
                left.add(each.popped.handle.queue_id)
        await self._acknowledge_all(together)

    def _fate(self, held: _Held, *, careful: bool) -> str:
        section = self._section
        if not self._in_order and is_poison(held.row.value, section.poison_share):
            return "leave"
        if careful:
            return "ack"
        if (
            _is_of_share(f"late {held.row.value}", section.late_share)
            and self._owed.deliveries(held.row.value) <= LATE_DELIVERIES
        ):
            return "late"
        luck = self._rng.random()
        for fate, share in (
            ("leave", section.leave_share),
            ("change", section.change_share),
            ("work", 0.0 if self._in_order else section.work_share),
            ("twice", section.twice_share),
            ("skip", section.skip_share if self._in_order else 0.0),
        ):
            if luck < share:
                return fate
            luck -= share
        return "ack"

    async def _treat(self, held: _Held, fate: str) -> bool:
        """Return whether the message was acknowledged, as far as it is known."""
        if fate == "late":
            self._planned.append(_Planned(at_s=held.over_at_s, held=(held,)))
        elif fate == "work":
            self._work_on(held, prolongs=self._rng.randint(1, _PROLONGS_MAX))
        elif fate == "change":
            return await self._change_and_go_on(held)
        elif fate == "twice":
            done = await self._acknowledge(held)
            await self._acknowledge(held)
            return done
        return False

    async def _change_and_go_on(self, held: _Held) -> bool:
        """Change the time, then acknowledge, or leave it, or use the receipt that was replaced."""
        changed = await self._change(held)
        if changed is None:
            return False
        luck = self._rng.random()
        if self._in_order or luck < 0.5:
            return await self._acknowledge(changed)
        if luck < 0.6:
            await self._change(held)  # by a receipt that counts no more
            return await self._acknowledge(changed)
        if luck < 0.85:
            await self._acknowledge(held, counts=False)
        return False

    async def _shorten_some(self, held: Sequence[_Held]) -> set[int]:
        """In order: give one message of a queue back early, now and then, and go on with the others
        until shortly before their time is over; return the queues where that is done."""
        by_queue: dict[int, list[_Held]] = {}
        for each in held:
            by_queue.setdefault(each.popped.handle.queue_id, []).append(each)
        shortened = set()
        for queue_id, together in by_queue.items():
            if len(together) < 2 or self._rng.random() >= self._section.shorten_share:
                continue
            shortened.add(queue_id)
            at = self._rng.randrange(len(together))
            changed = await self._change(together[at], share=_SHORTER)
            if changed is not None:
                others = min(each.begun_s + _AT_END * each.length_s for each in together)
                together[at] = changed
                self._planned.append(_Planned(at_s=others, held=tuple(together)))
        return shortened

    def _work_on(self, held: _Held, *, prolongs: int) -> None:
        """Plan to prolong the message's time, or to acknowledge it, before that is over."""
        share = self._rng.uniform(*_AT_WORK) if prolongs else _AT_END
        at_s = held.begun_s + share * held.length_s
        self._planned.append(_Planned(at_s=at_s, held=(held,), prolongs=prolongs))

    async def _go_on_with_planned(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for planned in [each for each in self._planned if each.at_s <= now_s]:
            self._planned.remove(planned)
            if planned.prolongs:
                (held,) = planned.held
                changed = await self._change(held, share=_LONGER)
                if changed is not None:
                    self._work_on(changed, prolongs=planned.prolongs - 1)
                continue
            for each in planned.held:
                if not await self._acknowledge(each) and self._in_order:
                    break  # it comes again, and those behind it

    # Requests ----------------------------------------------------------------------------------

    async def _change(self, held: _Held, *, share: float | None = None) -> _Held | None:
        """Change the invisible time once, to `share` of the usual; None where it is not known to be
        changed."""
        if share is None:
            share = _SHORTER if self._rng.random() < 0.5 else _LONGER
        invisible_ms = max(1, round(self._section.invisible_ms * share))
        self._receipts += 1
        receipt = f"{self._client}/{self._receipts}"
        requested_s = asyncio.get_running_loop().time()
        with self._operation("change", [held], due=self._due(invisible_ms)) as operation:
            try:
                popped = await self._consumer.change_invisible(held.popped, invisible_ms)
            except ClientError as error:
                operation.failed(error)
                return None
            operation.complete("ok", key=receipt)
        return self._held(popped, held.row, receipt, requested_s, invisible_ms)

    async def _acknowledge_all(self, held: Sequence[_Held]) -> None:
        """Acknowledge messages of one pop, in one request or one after the other."""
        if len(held) > 1 and self._rng.random() < self._section.batch_share:
            await self._repeat_ack(held, counts=True)
            return
        for each in held:
            if not await self._acknowledge(each) and self._in_order:
                return  # it comes again, and those behind it

    async def _acknowledge(self, held: _Held, *, counts: bool = True) -> bool:
        """Return whether it is acknowledged. `counts`: its receipt is not replaced."""
        return await self._repeat_ack([held], counts=counts)

    async def _repeat_ack(self, held: Sequence[_Held], *, counts: bool) -> bool:
        for _ in range(ACK_TRIES):
            if await self._ack(held, counts=counts):
                return True
            await asyncio.sleep(ERROR_PAUSE_S)
        return False

    async def _ack(self, held: Sequence[_Held], *, counts: bool) -> bool:
        loop = asyncio.get_running_loop()
        with self._operation("ack", held) as operation:
            try:
                if len(held) == 1:
                    await self._consumer.ack(held[0].popped)
                else:
                    await self._consumer.ack_all([each.popped for each in held])
            except ClientError as error:
                operation.failed(error)
                if counts and not error.definite:
                    self._doubt(held)
                return False
            except asyncio.CancelledError:
                if counts:  # crashed in the middle of it: it counted, or they come again
                    self._doubt(held)
                raise
            operation.complete("ok")
        if counts:
            for each in held:
                if loop.time() <= each.sure_until_s:
                    self._owed.acknowledged(each.row.value)
                else:
                    self._doubt([each])
        return True

    def _doubt(self, held: Sequence[_Held]) -> None:
        now_s = asyncio.get_running_loop().time()
        for each in held:
            until_s = max(now_s, each.over_at_s) + RETURN_SLACK_S
            self._owed.maybe_acknowledged(each.row.value, until_s)

    def _operation(
        self, f: str, held: Sequence[_Held], due: int | None = None
    ) -> AbstractContextManager[Operation]:
        return self._actor.operation(
            f,
            broker_group=held[0].popped.handle.broker_name,
            topic=self._topic,
            messages=[each.row for each in held],
            ref=held[0].receipt,
            due=due,
        )


def is_poison(value: str, share: float) -> bool:
    """Return whether nobody acknowledges the message: the same answer wherever it is called."""
    return _is_of_share(value, share)


def _is_of_share(value: str, share: float) -> bool:
    return zlib.crc32(value.encode()) % 10_000 < share * 10_000
