"""Drills of queues: pulls of every size, queries by key and id, sends that are repeated, recalls
that are repeated: what is asked again, later, and after whatever faults there were.

Place in the data path: `drills` makes one of each per queue and has them run again and again;
requests go through `drill.Drill`. The model is the list of what was acknowledged, and a few values.

Source: RocketMQ PullMessageProcessor, QueryMessageProcessor, RecallMessageProcessor; promises G2
and G5.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chaos.workload.messages import PROPERTY_NUMBER
from chaos.workload.parts.common.drill import Drill, Stored
from chaos.workload.parts.common.shown_answers import records_of, values_of
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = [
    "PullDrill",
    "QueryDrill",
    "RecallDrill",
    "Recallable",
    "RepeatDrill",
    "numbered",
]

_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag
_HELD: Final = 2  # bit of a pull's sysFlag: it is held where it finds nothing
HELD_MS: Final = 50
HELD_SURE: Final = 0.8  # of a time for which a pull is held: clocks run at rates of their own
_FOREVER_MS: Final = 1 << 60
FIELDS: Final = 5  # of a handle of RocketMQ's
PLACED_SHARE: Final = 0.5  # of others have what a broker writes behind these
COUNTS: Final = (1, 2, 3, 32, 33, 1_000)
STEPS: Final = 4
TIMES: Final = 3  # of one key
OFTEN: Final = 3  # keys that come again and again
LAST: Final = 60  # other keys, of the last questions


class PullDrill:
    """Pulls from anywhere in the queue, and from beyond its ends."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group

    async def run(self) -> None:
        """Pull some times. Raises Unsure."""
        rng = self.drill.rng
        for _ in range(STEPS):
            offset = rng.randint(-1, self.drill.end + 2)
            kind = rng.random()
            if kind < 0.25:
                await self._pull_tagged(max(0, offset), rng.choice(COUNTS))
            elif kind < 0.5:
                await self._pull_numbered(max(0, offset), rng.choice(COUNTS))
            else:
                await self._pull(offset, rng.choice(COUNTS), is_small=rng.random() < 0.2)

    async def _pull(self, offset: int, count: int, *, is_small: bool) -> None:
        """Pull; `is_small`: no more bytes than one message has."""
        end = self.drill.end
        if 0 <= offset < end:
            found = self.drill.stored[offset : offset + (1 if is_small else count)]
            expected = f"0 {_shown(found)} next {offset + len(found)} of 0 to {end}"
        else:
            code, goes_on = (19, end) if offset == end else (21, 0 if offset < 0 else end)
            expected = f"{code}  next {goes_on} of 0 to {end}"
        fields = self._fields(offset, count) | ({"maxMsgBytes": 1} if is_small else {})
        loop = asyncio.get_running_loop()
        begun_s, is_held = loop.time(), offset == end and fields["sysFlag"] != _WITH_SUBSCRIPTION

        def show(answer: RemotingCommand) -> str:
            is_early = is_held and loop.time() - begun_s < HELD_SURE * HELD_MS / 1000
            return _show_pull(answer) + (", too early" if is_early else "")

        await self.drill.request(
            f"pull {count} from {offset}{', one byte' if is_small else ''}",
            self._code(),
            fields | {"subscription": "*"},
            expected=expected,
            show=show,
            is_calm=True,
        )

    async def _pull_tagged(self, offset: int, count: int) -> None:
        """Pull by tags."""
        tags = self.drill.rng.sample([f"T{number}" for number in range(4)], 2)
        found = [each for each in self.drill.stored[offset:] if each.tag in tags][:count]
        if not found:
            return
        await self.drill.request(
            f"pull {count} from {offset} with {tags}",
            self._code(),
            self._fields(offset, count) | {"subscription": " || ".join(tags)},
            expected=f"0 {_shown(found)}",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
            is_calm=True,
        )

    async def _pull_numbered(self, offset: int, count: int) -> None:
        """Pull by an expression of SQL92 on the number that every message has."""
        expression, found = numbered(self.drill, offset)
        if not found:
            return
        await self.drill.request(
            f"pull {count} from {offset} with {expression}",
            self._code(),
            self._fields(offset, count) | {"subscription": expression, "expressionType": "SQL92"},
            expected=f"0 {_shown(found[:count])}",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
            is_calm=True,
        )

    def _code(self) -> RequestCode:
        return self.drill.rng.choice((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

    def _fields(self, offset: int, count: int) -> dict[str, object]:
        return self.drill.place(
            consumerGroup=self._group,
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=self.drill.rng.choice((_WITH_SUBSCRIPTION, _WITH_SUBSCRIPTION | _HELD)),
            commitOffset=0,
            suspendTimeoutMillis=HELD_MS,
            subVersion=0,
            expressionType="TAG",
        )


def numbered(drill: Drill, offset: int) -> tuple[str, list[Stored]]:
    """Draw an expression of SQL92; return it, and which messages from `offset` on it is true of."""
    low, high = sorted(drill.rng.choices([number_of(each) for each in drill.stored], k=2))
    what, is_wanted = drill.rng.choice(
        (
            (f"between {low} and {high}", lambda number: low <= number <= high),
            (f"not between {low} and {high}", lambda number: not low <= number <= high),
            (f"> {low}", lambda number: number > low),
            (f"<= {high}", lambda number: number <= high),
            (f"<> {low}", lambda number: number != low),
            (f"in ('{low}', '{high}')", lambda number: number in {low, high}),
        )
    )
    found = [each for each in drill.stored[offset:] if is_wanted(number_of(each))]
    return f"{PROPERTY_NUMBER} {what}", found


def number_of(one: Stored) -> int:
    """Return the number of a message, which is the end of its value and a property of its own."""
    return int(one.value.rpartition("-")[2])


class QueryDrill:
    """Queries by key, by UNIQ_KEY and by message id, and by key within a time: both ends of it
    count, wherever in the index the messages are.

    The keys that most messages have are always among them: what came under one key all the while
    has to be found across all that an index was saved, sealed and opened again. `is_last`: with
    them many others, once.
    """

    def __init__(self, drill: Drill, *, is_last: bool = False) -> None:
        self.drill = drill
        self._is_last = is_last
        self._times: dict[int, int] = {}  # of storing, as records say, by offset

    async def run(self) -> None:
        """Query some messages. Raises Unsure."""
        rng = self.drill.rng
        counts = Counter(key for each in self.drill.stored for key in each.keys)
        keys = [key for key, _ in counts.most_common(OFTEN)]
        if self._is_last:
            keys += rng.sample(sorted(counts), min(LAST, len(counts)))
        for key in keys:
            await self._by_key(key, 64)
        if self._is_last:
            return
        for _ in range(STEPS):
            one = rng.choice(self.drill.stored)
            if one.keys and rng.random() < 0.6:
                await self._by_key(rng.choice(one.keys), rng.choice((1, 2, 32, 64, 65)))
            else:
                await self._by_uniq_key(one)
            await self._by_id(one)
            if one.keys:
                await self._by_time(rng.choice(one.keys))
        await self._query("no-such-key", 32, [])
        await self._units()

    async def _units(self) -> None:
        """Query units of the queue as they are stored: places in the log, hashes of tags."""
        at, count = self.drill.rng.randrange(self.drill.end), self.drill.rng.choice((1, 2, 10))
        units = " ".join(
            f"{int(each.offset_msg_id[-16:], 16)}#{_hash_of(each.tag)}"
            for each in self.drill.stored[at : at + count]
        )
        await self.drill.request(
            f"{count} units from {at}",
            RequestCode.QUERY_CONSUME_QUEUE,
            self.drill.place(index=at, count=count),
            expected=f"0 {units} of 0 to {self.drill.end}",
            show=_show_units,
            is_calm=True,
        )

    async def _by_key(self, key: str, count: int) -> None:
        found = [each for each in self.drill.stored if key in each.keys]
        await self._query(key, count, found[-min(count, 64) :])

    async def _by_time(self, key: str) -> None:
        """Query a key's messages within times that begin and end at, or next to, those of
        storing."""
        rng = self.drill.rng
        named = [each for each in self.drill.stored if key in each.keys]
        for each in named:
            if each.offset not in self._times:
                await self._by_id(each)
        times = [self._times[each.offset] for each in named if each.offset in self._times]
        if len(times) < len(named):
            return
        for _ in range(TIMES):
            begin_ms = rng.choice((0, rng.choice(times) + rng.randint(-1, 1)))
            end_ms = rng.choice((_FOREVER_MS, rng.choice(times) + rng.randint(-1, 1)))
            found = [
                each
                for each, time_ms in zip(named, times, strict=True)
                if begin_ms <= time_ms <= end_ms
            ]
            await self._query(key, 64, found, beginTimestamp=begin_ms, endTimestamp=end_ms)

    async def _by_uniq_key(self, one: Stored) -> None:
        await self._query(one.uniq_key, 1, [one], _UNIQUE_KEY_QUERY="true")

    async def _query(self, key: str, count: int, found: Sequence[Stored], **more: object) -> None:
        await self.drill.request(
            f"at most {count} under {key}, {more}",
            RequestCode.QUERY_MESSAGE,
            {
                "topic": self.drill.queue.topic,
                "key": key,
                "maxNum": count,
                "beginTimestamp": 0,
                "endTimestamp": _FOREVER_MS,
                **more,
            },
            expected=f"0 {_shown(found)}" if found else "22 ",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
        )

    async def _by_id(self, one: Stored) -> None:
        """Fetch by the id that the send's answer had: an address, and a place in the log."""
        answer = await self.drill.request(
            f"message {one.offset_msg_id}",
            RequestCode.VIEW_MESSAGE_BY_ID,
            {"offset": int(one.offset_msg_id[-16:], 16)},
            expected=f"0 {_shown([one])}",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
        )
        if answer is not None:
            self._times[one.offset] = records_of(answer)[0].store_timestamp_ms


class RepeatDrill:
    """Sends of what is stored: answered with the first place, wherever they go, as long as brokers
    remember their keys: for `window_ms`."""

    def __init__(self, drill: Drill, *, window_ms: int) -> None:
        self.drill = drill
        self._sure_s = window_ms / 2_000

    async def run(self) -> None:
        """Repeat a send or two. Raises Unsure."""
        for one in self.drill.rng.choices(self.drill.stored, k=2):
            if asyncio.get_running_loop().time() - one.sent_s > self._sure_s:
                continue
            fields = dict(one.command.ext_fields)
            if self.drill.rng.random() < 0.3:
                fields["e"] = str((self.drill.queue.queue_id + 1) % self.drill.queue_count)
            await self.drill.request(
                f"send {one.value} again, to queue {fields['e']}",
                RequestCode(one.command.code),
                fields,
                body=one.command.body,
                expected=f"0 {self.drill.queue.queue_id} {one.offset} at {one.offset_msg_id[-16:]}",
                show=_show_sent,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recallable:
    """A message that waits for a time far ahead, and the handle to recall it by."""

    uniq_key: str
    handle: str


class RecallDrill:
    """Recalls of waiting messages, once and again, and of what never waited."""

    def __init__(self, drill: Drill, waiting: Sequence[Recallable]) -> None:
        self.drill = drill
        self._waiting = waiting

    async def run(self) -> None:
        """Recall some, which may be recalled already, and by handles that are none of theirs.
        Raises Unsure."""
        if self._waiting:
            one = self.drill.rng.choice(self._waiting)
            await self._recall_by_others(one.handle)
            await self.drill.request_twice(
                f"recall {one.uniq_key}",
                RequestCode.RECALL_MESSAGE,
                [(self._fields(one.handle), b"")] * 2,
                expected=[f"0 {one.uniq_key}"] * 2,
                show=_show_recalled,
            )
            await self._recall(one.handle, f"0 {one.uniq_key}", f"{one.uniq_key} again")
        await self._recall("no handle", "604 None", "by no handle")

    async def _recall_by_others(self, handle: str) -> None:
        """Recall by handles each of which differs from one that counts in one field: they are
        refused, whether or not that message waits, but for one of a key that nothing waits by."""
        items = base64.urlsafe_b64decode(handle).decode().split(" ")
        version, topic, broker, deliver, key, *place = items  # behind the key: what is the broker's
        refused = "604 None"
        others = [
            ("of another topic", (version, "another", broker, deliver, key), refused),
            ("of another broker", (version, topic, f"{broker}-2", deliver, key), refused),
            ("of a broker without a name", (version, topic, "", deliver, key), refused),
            ("of a time that is over", (version, topic, broker, "1000", key), refused),
            ("of a time too far away", (version, topic, broker, f"{deliver}0", key), refused),
            ("of no time", (version, topic, broker, f"{deliver}x", key), refused),
            ("of another version", (f"{version}0", topic, broker, deliver, key), refused),
            ("without a key", (version, topic, broker, deliver), refused),
            ("of another key", (version, topic, broker, deliver, f"{key}X"), f"0 {key}X"),
        ]
        self.drill.rng.shuffle(others)
        for what, fields, expected in others:
            is_placed = len(fields) == FIELDS and self.drill.rng.random() < PLACED_SHARE
            more = place if is_placed else []
            other = base64.urlsafe_b64encode(" ".join((*fields, *more)).encode()).decode()
            await self._recall(other, expected, f"by a handle {what}")
        await self.drill.request(
            "recall in a topic that is not there",
            RequestCode.RECALL_MESSAGE,
            self._fields(handle) | {"topic": f"{topic}-not-there"},
            expected="17 None",
            show=_show_recalled,
        )

    async def _recall(self, handle: str, expected: str, what: str) -> None:
        await self.drill.request(
            f"recall {what}",
            RequestCode.RECALL_MESSAGE,
            self._fields(handle),
            expected=expected,
            show=_show_recalled,
        )

    def _fields(self, handle: str) -> dict[str, object]:
        queue = self.drill.queue
        return {"topic": queue.topic, "recallHandle": handle, "bname": queue.broker_name}


def _shown(found: Sequence[Stored]) -> str:
    return ",".join(f"{each.offset}:{each.value}" for each in found)


def _show_pull(answer: RemotingCommand) -> str:
    field = answer.ext_fields.get
    shown = values_of(answer) if records_of(answer) else ""
    return (
        f"{answer.code} {shown} next {field('nextBeginOffset')}"
        f" of {field('minOffset')} to {field('maxOffset')}"
    )


def _hash_of(tag: str) -> int:
    """Return String.hashCode of a tag."""
    value = 0
    for character in tag:
        value = (31 * value + ord(character)) & 0xFFFF_FFFF
    return value - (1 << 32 if value >> 31 else 0)


def _show_units(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    body = json.loads(answer.body or b"{}")
    units = " ".join(
        f"{unit.get('physicOffset')}#{unit.get('tagsCode')}" for unit in body.get("queueData") or ()
    )
    return f"0 {units} of {body.get('minQueueIndex')} to {body.get('maxQueueIndex')}"


def _show_recalled(answer: RemotingCommand) -> str:
    return f"{answer.code} {answer.ext_fields.get('msgId')}"


def _show_sent(answer: RemotingCommand) -> str:
    field = answer.ext_fields.get
    position = (field("msgId") or "")[-16:]  # behind the address of whoever answers
    return f"{answer.code} {field('queueId')} {field('queueOffset')} at {position}"
