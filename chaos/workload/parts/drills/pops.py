"""Drills of POP: a new group pops one queue, with and without order, and does all that there is to
do to what it holds; what it must get, and what must be refused, is computed beforehand.

Place in the data path: `drills` makes one with each new group; requests go through `drill.Drill`.
The model is this: a group's next offset, and what it holds. Times are so long that nothing comes
back by itself, but for what is made visible on purpose.

Source: RocketMQ PopMessageProcessor, PeekMessageProcessor, NotificationProcessor,
AckMessageProcessor, ChangeInvisibleTimeProcessor, ConsumerOrderInfoManager.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chaos.workload.parts.common.drill import Drill, Stored, Unsure
from chaos.workload.parts.common.shown_answers import values_of
from chaos.workload.parts.drills.handles import Handle, ack_body
from chaos.workload.parts.drills.order_sets import UNNAMED, OrderSet
from chaos.workload.parts.drills.pop_answers import pop_ms, show_peek, show_pop
from chaos.workload.parts.drills.queues import numbered
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["PopDrill"]

INVISIBLE_MS: Final = 6 * 3_600_000
VISIBLE_AT_ONCE_MS: Final = 1
VISIBLE_WITHIN_S: Final = 0.4
HELD_MS: Final = 50  # for which a question is held that finds nothing
COUNT_MAX: Final = 5
STEPS: Final = (4, 12)
UNNAMED_SHARE: Final = 0.4  # of the attempts in order
TWICE_SHARE: Final = 0.2
SHORT_SHARE: Final = 0.2  # of receipts
ALL_SHARE: Final = 0.4
LAST_SHARE: Final = 0.3  # of the rounds of a group without order end its drill
_NOTHING: Final = "210"  # POLLING_TIMEOUT
_HELD_NO_MORE: Final = "208"
_REFUSED: Final = "29"  # INVALID_PARAMETER


class PopDrill:
    """One group, from its first pop on. `is_order`: it pops in order."""

    def __init__(self, drill: Drill, group: str, *, is_order: bool) -> None:
        self.drill = drill
        self._group = group
        self._is_order = is_order
        self._rng = drill.rng
        self._next = 0
        self._held: dict[int, Handle] = {}
        self._used: list[tuple[int, Handle]] = []  # handles that count no more
        self._set: OrderSet | None = None
        self._attempts = itertools.count(1)
        self._is_returning = False  # some of what is held is visible again, or is to be soon

    async def run(self) -> None:
        """Do some steps at random; in a later round more of them. Raises Unsure, EndedError."""
        if self._is_returning:
            raise Unsure  # it was ended in the middle of that
        await self._change()  # what the round before has left is held all the while
        await self._pop()
        steps: list[Callable[[], Awaitable[None]]] = [
            self._pop,
            self._pop_twice,
            self._ack,
            self._ack,
            self._ack_twice,
            self._ack_batch,
            self._ack_used,
            self._ack_used_batch,
            self._change,
            self._peek,
            self._notify,
            self._offset,
            self._reset,
            self._illegal,
        ]
        if self._is_order:
            steps += [self._same_attempt, self._make_visible]
        for _ in range(self._rng.randint(*STEPS)):
            await self._rng.choice(steps)()
        await self._offset()
        if not self._is_order and self._rng.random() < LAST_SHARE:
            await self._pop_tagged()
            raise Unsure

    # Pops --------------------------------------------------------------------------------------

    async def _pop(self) -> None:
        """Pop some; in order nothing, where something is held."""
        await self._pop_as(self._new_attempt())

    def _new_attempt(self) -> str:
        """Return the name of an attempt, or now and then none, as older clients have none."""
        if self._rng.random() < UNNAMED_SHARE:
            return UNNAMED
        return f"{self._group}#{next(self._attempts)}"

    async def _same_attempt(self) -> None:
        """Pop again as the attempt that has what is held: its answer might have been lost. One
        without a name finds the queue blocked."""
        if self._set is not None:
            await self._pop_as(self._set.attempt)

    async def _pop_as(self, attempt: str, *, is_visible: bool = False) -> None:
        count = self._rng.randint(1, COUNT_MAX)
        before = self._set
        start = self._next
        found = self.drill.stored[start : start + count]
        if before is not None and not before.is_of(attempt) and not is_visible:
            found = []
        counts: dict[int, int] = {}
        if found and before is not None:
            counts = before.counts_of(attempt, [each.offset for each in found])
        left = self.drill.end - start - len(found)
        answer = await self.drill.request(
            f"pop {count} of {self._group}" + (f" as {attempt!r}" if self._is_order else ""),
            RequestCode.POP_MESSAGE,
            self._pop_fields(count, attempt),
            expected=self._found(found, left, counts) if found else _NOTHING,
            show=show_pop,
            changes=True,
            is_calm=is_visible,
        )
        if not found or answer is None:
            if is_visible:
                raise Unsure
            return
        handles = {
            each.offset: Handle.of_pop(answer, each.offset, self.drill.queue) for each in found
        }
        if self._is_order:
            if before is not None:
                self._used += [
                    pair for pair in before.held.items() if pair[1].pop_ms != int(pop_ms(answer))
                ]
            self._set = OrderSet(attempt=attempt, held=handles, done=set(), counts=counts)
        else:
            self._held |= handles
            self._next = found[-1].offset + 1

    async def _pop_twice(self) -> None:
        """Have two members pop as many at one time: in order one of them gets nothing, without
        order one goes on behind the other."""
        count, at = self._rng.randint(1, COUNT_MAX), self._next
        stored, end = self.drill.stored, self.drill.end
        shares = [stored[at : at + count], stored[at + count : at + 2 * count]]
        if self._is_order:
            shares = [[] if self._set is not None else shares[0], []]
        attempts = [self._new_attempt() for _ in shares]
        expected = [
            self._found(share, end - share[-1].offset - 1, {}) if share else _NOTHING
            for share in shares
        ]
        answers = await self.drill.request_twice(
            f"pop {count} of {self._group}",
            RequestCode.POP_MESSAGE,
            [(self._pop_fields(count, attempt), b"") for attempt in attempts],
            expected=expected,
            show=show_pop,
        )
        for attempt, answer in zip(attempts, answers, strict=True):
            share = shares[expected.index(show_pop(answer))]
            if not share:
                continue
            handles = {
                each.offset: Handle.of_pop(answer, each.offset, self.drill.queue) for each in share
            }
            if self._is_order:
                self._set = OrderSet(attempt=attempt, held=handles, done=set(), counts={})
            else:
                self._held |= handles
                self._next = max(self._next, share[-1].offset + 1)

    async def _pop_tagged(self) -> None:
        """Pop by a tag or an expression, at last: how far beyond what it got the group is then, a
        broker may say."""
        tag, count = f"T{self._rng.randrange(4)}", self._rng.randint(1, COUNT_MAX)
        kind, found = "TAG", [each for each in self.drill.stored[self._next :] if each.tag == tag]
        if self._rng.random() < 0.5:
            kind, (tag, found) = "SQL92", numbered(self.drill, self._next)
        found = found[:count]
        if not found:
            return
        fields = self._pop_fields(count, "") | {"expType": kind, "exp": tag}
        await self.drill.request(
            f"pop {count} of {self._group} with {tag}",
            RequestCode.POP_MESSAGE,
            fields,
            expected="0 " + ",".join(f"{each.offset}:{each.value}" for each in found),
            show=lambda answer: f"{answer.code} {values_of(answer)}",
            changes=True,
        )

    def _pop_fields(self, count: int, attempt: str) -> dict[str, object]:
        fields = self.drill.place(
            consumerGroup=self._group,
            maxMsgNums=count,
            invisibleTime=INVISIBLE_MS,
            pollTime=self._rng.choice((0, 0, HELD_MS)),
            bornTime=0,
            initMode=self._rng.choice((0, 1)),  # in a young topic a group begins at 0 all the same
            order=str(self._is_order).lower(),
        )
        is_named = self._is_order and (attempt != UNNAMED or self._rng.random() < 0.5)
        return fields | ({"attemptId": attempt} if is_named else {})

    def _found(self, found: Sequence[Stored], left: int, counts: dict[int, int]) -> str:
        queue_id = self.drill.queue.queue_id
        shown = ",".join(f"{each.offset}:{each.value}" for each in found)
        offsets = ",".join(str(each.offset) for each in found)
        text = (
            f"0 {shown} from 0 {queue_id} {found[0].offset} at 0 {queue_id} {offsets}, {left} left,"
            f" hidden {INVISIBLE_MS} in {999 if self._is_order else 0}"
        )
        again = [f"{at}x{counts[at]}" for at in sorted(counts)]
        return f"{text}, again {' '.join(again)}" if again else text

    # What becomes of what is held ----------------------------------------------------------------

    def _one_held(self) -> tuple[int, Handle] | None:
        held = self._held
        if self._is_order:
            held = {} if self._set is None else self._set.left()
        return self._rng.choice(sorted(held.items())) if held else None

    async def _ack(self) -> None:
        """Acknowledge one."""
        if one := self._one_held():
            await self._request_ack(*one, what="ack")
            self._acked([one])

    async def _ack_twice(self) -> None:
        """Acknowledge one by two requests at one time."""
        one = self._one_held()
        if one is None:
            return
        await self.drill.request_twice(
            f"ack {one[0]} of {self._group}",
            RequestCode.ACK_MESSAGE,
            [(self._handle_fields(*one), b"")] * 2,
            expected=["0", "0"],
        )
        self._acked([one])

    def _acked(self, pairs: Sequence[tuple[int, Handle]]) -> None:
        self._used += pairs
        for offset, _ in pairs:
            self._held.pop(offset, None)
        if self._set is not None:
            self._set.done |= {offset for offset, _ in pairs}
            self._next = self._set.first_left()
            if not self._set.left():
                self._set = None

    async def _ack_batch(self) -> None:
        """Acknowledge all that one pop gave, or all that is held, in one request."""
        one = self._one_held()
        if one is None:
            return
        held = self._held if self._set is None else self._set.left()
        is_all = self._rng.random() < ALL_SHARE
        pairs = [pair for pair in held.items() if is_all or pair[1].pop_ms == one[1].pop_ms]
        await self.drill.request(
            f"ack {sorted(offset for offset, _ in pairs)} of {self._group}",
            RequestCode.BATCH_ACK_MESSAGE,
            {},
            body=ack_body(self.drill.queue, self._group, pairs),
            expected="0",
            changes=True,
        )
        self._acked(pairs)

    async def _ack_used(self) -> None:
        """Acknowledge once more, or beyond the queue: it has no effect."""
        if not self._used:
            return
        offset, handle = self._rng.choice(self._used)
        held = self._held if self._set is None else self._set.held
        if offset in held and held[offset].pop_ms == handle.pop_ms:
            return  # popped again in the same millisecond
        await self._request_ack(offset, handle, what="ack again")
        await self._hold_held(offset)
        beyond = self.drill.end + 1 + self._rng.randrange(3)
        await self.drill.request(
            f"ack {beyond} of {self._group}, beyond the end",
            RequestCode.ACK_MESSAGE,
            self._handle_fields(beyond, handle),
            expected=_HELD_NO_MORE,
            changes=True,
        )

    async def _ack_used_batch(self) -> None:
        """Acknowledge in one request, by a pop time that counts no more, what it was of, and all
        that is held since another pop or change: it has no effect."""
        held = self._held if self._set is None else self._set.left()
        counting = {handle.pop_ms for handle in held.values()}
        used = [pair for pair in self._used if pair[1].pop_ms not in counting]
        if not used:
            return
        offset, handle = self._rng.choice(used)
        others = [at for at in held if at != offset]
        # Fewer than are held, or more: a broker goes through whichever are less.
        named, batch = {offset}, [(offset, handle)]
        if self._rng.random() < 0.5:
            named |= {*others, *range(self._rng.randint(0, self.drill.end))}
            batch = [(at, handle) for at in named] + [pair for pair in used if pair[0] not in named]
        await self.drill.request(
            f"ack {sorted(at for at, _ in batch)} of {self._group}, by pops that count no more",
            RequestCode.BATCH_ACK_MESSAGE,
            {},
            body=ack_body(self.drill.queue, self._group, batch),
            expected="0",
            changes=True,
        )
        for at in sorted(named & held.keys())[:2]:
            await self._hold_held(at)

    async def _hold_held(self, offset: int) -> None:
        """Change the time of what is held, if it is: what was acknowledged can't be changed."""
        handle = self._held.get(offset)
        if handle is not None and self._set is None:
            changed = await self._request_change(offset, handle, INVISIBLE_MS, expected="0")
            self._held[offset] = Handle.of_change(changed, handle)
            self._used.append((offset, handle))

    async def _request_ack(self, offset: int, handle: Handle, *, what: str) -> None:
        await self.drill.request(
            f"{what} {offset} of {self._group}",
            RequestCode.ACK_MESSAGE,
            self._handle_fields(offset, handle),
            expected="0",
            changes=True,
        )

    async def _change(self) -> None:
        """Change a time; without order the old handle counts no more."""
        one = self._one_held()
        if one is None:
            return
        offset, handle = one
        if not self._is_order and self._rng.random() < TWICE_SHARE:
            await self._change_twice(offset, handle)
            return
        changed = await self._request_change(offset, handle, INVISIBLE_MS + 1, expected="0")
        if self._is_order:
            return
        new = Handle.of_change(changed, handle)
        self._held[offset] = new
        self._used.append((offset, handle))
        await self._request_change(offset, handle, INVISIBLE_MS, expected=_HELD_NO_MORE)

    async def _change_twice(self, offset: int, handle: Handle) -> None:
        """Change a time by two requests at one time: one of them comes too late."""
        fields = self._handle_fields(offset, handle) | {"invisibleTime": INVISIBLE_MS}
        answers = await self.drill.request_twice(
            f"change {offset} of {self._group}",
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            [(fields, b"")] * 2,
            expected=["0", _HELD_NO_MORE],
        )
        (changed,) = (answer for answer in answers if answer.code == 0)
        self._held[offset] = Handle.of_change(changed, handle)
        self._used.append((offset, handle))

    async def _request_change(
        self, offset: int, handle: Handle, invisible_ms: int, *, expected: str
    ) -> RemotingCommand:
        fields = self._handle_fields(offset, handle) | {"invisibleTime": invisible_ms}
        answer = await self.drill.request(
            f"change {offset} of {self._group} to {invisible_ms} ms",
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            fields,
            expected=expected,
            changes=True,
        )
        assert answer is not None
        return answer

    async def _make_visible(self) -> None:
        """In order: give all back at once, and pop them again, counted."""
        if self._set is None:
            return
        self._is_returning = True
        for offset, handle in self._set.left().items():
            await self._request_change(offset, handle, VISIBLE_AT_ONCE_MS, expected="0")
        await asyncio.sleep(VISIBLE_WITHIN_S)
        await self._pop_as(self._new_attempt(), is_visible=True)
        self._is_returning = False

    def _handle_fields(self, offset: int, handle: Handle) -> dict[str, object]:
        return self.drill.place(
            consumerGroup=self._group,
            offset=offset,
            extraInfo=handle.text(offset, is_short=self._rng.random() < SHORT_SHARE),
        )

    # Questions that take nothing, and resets -----------------------------------------------------

    async def _peek(self) -> None:
        """Peek: what a pop without order would find now."""
        count = self._rng.randint(1, COUNT_MAX)
        found = self.drill.stored[self._next : self._next + count]
        queue_id, left = self.drill.queue.queue_id, self.drill.end - self._next
        expected = f"19 nothing, {left} left"
        if found:
            shown = ",".join(f"{each.offset}:{each.value}" for each in found)
            offsets = ",".join(str(each.offset) for each in found)
            expected = (
                f"0 {shown} from 0 {queue_id} {self._next} at 0 {queue_id} {offsets}, {left} left"
            )
        await self.drill.request(
            f"peek {count} of {self._group}",
            RequestCode.PEEK_MESSAGE,
            self.drill.place(consumerGroup=self._group, maxMsgNums=count),
            expected=expected,
            show=show_peek,
            is_calm=True,
        )

    async def _notify(self) -> None:
        """Query whether a pop would find anything."""
        has = self._next < self.drill.end and self._set is None
        await self.drill.request(
            f"would a pop of {self._group} find any",
            RequestCode.NOTIFICATION,
            self.drill.place(
                consumerGroup=self._group,
                pollTime=self._rng.choice((0, HELD_MS)),
                bornTime=0,
                order=str(self._is_order).lower(),
            ),
            expected=f"0 {str(has).lower()}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('hasMsg')}",
            is_calm=True,
        )

    async def _offset(self) -> None:
        """Query the group's offset: of a group that pops, that of its next pop."""
        await self.drill.request(
            f"offset of {self._group}",
            RequestCode.QUERY_CONSUMER_OFFSET,
            self.drill.place(consumerGroup=self._group, setZeroIfNotFound="false"),
            expected=f"0 {self._next}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('offset')}",
        )

    async def _reset(self) -> None:
        """Reset the group, which holds nothing any more then."""
        offset = self._rng.randint(0, self.drill.end)
        await self.drill.request(
            f"reset {self._group} to {offset}",
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            self.drill.place(group=self._group, timestamp=-1, isForce="true", offset=offset),
            expected="0",
            changes=True,
        )
        self._next = offset
        self._used += self._held.items()
        self._held = {}
        if self._set is not None:
            self._used += self._set.held.items()
            self._set = None
        for _ in range(2):  # the second one goes on behind, or finds the queue blocked
            await self._pop()

    async def _illegal(self) -> None:
        """Pop what no broker gives."""
        wrong = self._rng.choice(
            (
                {"maxMsgNums": 33},
                {"invisibleTime": 0},
                {"invisibleTime": 12 * 3_600_000 + 1},
                {"queueId": 4_711},
            )
        )
        await self.drill.request(
            f"pop of {self._group} with {wrong}",
            RequestCode.POP_MESSAGE,
            self._pop_fields(1, "") | wrong,
            expected=_REFUSED,
            changes=True,
        )
