"""Drills of properties: messages whose block of properties is written as any client may write it,
and whose body is compressed as any client compresses it, read back as RocketMQ reads them.

Place in the data path: `drills` makes one with each new topic of one queue. Blocks end with a
separator or without, hold names twice, empty values and entries that are none, the system's names
beside those of applications, in any order; they come in SEND_MESSAGE, SEND_MESSAGE_V2, batches,
and, where the topic is one that rules pass over, as halves and delayed messages. What is stored
there is pulled, by tag and by expression, too, and looked for by key. Requests go through
`drill.Drill`.

The model: of two equal names the last one with a value counts; an entry without a name, a separator
or a value is none; what the broker adds replaces what the sender has put there; nothing else
changes.

Source: RocketMQ MessageDecoder.string2messageProperties, SendMessageProcessor.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import lz4.frame
import zstandard

from chaos.workload.messages import PROPERTY_VALUE, tag_of, wall_ms
from chaos.workload.parts.common.drill import (
    FOREVER_MS,
    FOUND_MAX,
    UNLISTED,
    Drill,
    Unsure,
)
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.sends import LONG_NAMES
from chaos.workload.parts.drills.topic_of_drill import make_topic
from client.message import Message
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records import sys_flag as flags
from remoting.records.body_compression import decompress_body
from remoting.records.message import BatchItem, MessageRecord, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["PropertyDrill", "block_of", "parsed"]

LISTED_SHARE: Final = 0.6
SENDS: Final = (6, 10)
BATCH_MAX: Final = 3
COMPRESSED_SHARE: Final = 0.4
LONG_SHARE: Final = 0.5  # of those that wait, behind one that waits for hours
HELD_MS: Final = 1_800  # what is due in a second or less has come by then, in calm times
DIALECT_SHARE: Final = 0.5  # of the blocks end without a separator, as those of clients of 4.9
LAST_SHARE: Final = 0.5  # of the blocks have one last by which messages are found
NOISE_SHARE: Final = 0.35
NAMELESS_SHARE: Final = 0.2
_NAMES: Final = ("u_a", "u_b", "u_TAGS", "TAGS_2", "u_UNIQ_KEY", "lower_keys", "u_größe", "a b")
_VALUES: Final = ("x", "yes", "a = b", "größer", "two  blanks", "\u4e2d\u6587", "v\x01w", " ", "0")
_SYSTEM: Final = (
    ("BUYER_ID", "b-1"),
    (PropertyName.CORRELATION_ID, "c-1"),
    (PropertyName.TTL, "3000"),
    (PropertyName.TRAN_MSG, "false"),
    (PropertyName.DELAY, "0"),
    (PropertyName.MSG_REGION, "elsewhere"),
    (PropertyName.TRACE_ON, "false"),
)
_ADDED: Final = {PropertyName.MSG_REGION: "DefaultRegion", PropertyName.TRACE_ON: "true"}
_TIMERS: Final = "TIMER_"
# What brokers write for themselves, and may leave in what they deliver, beside those of timers.
_THEIRS: Final = frozenset(
    {
        PropertyName.CLUSTER,
        PropertyName.DELAY,
        PropertyName.TRAN_MSG,
        PropertyName.PGROUP,
        PropertyName.REAL_TOPIC,
        PropertyName.REAL_QUEUE_ID,
    }
)
_WAITS: Final = ((PropertyName.DELAY, "1"), (PropertyName.TIMER_DELAY_MS, "150"))
_LONG_LEVELS: Final = ("18", "19", "40", "1000000")  # levels above the last one count as that
_WITH_SUBSCRIPTION: Final = 4  # bits of a pull's sysFlag
_HELD: Final = 2
_PREPARED: Final = 4  # of a message's sysFlag
_COMPRESSIONS: Final = (  # clients before 5.0 name none, and mean zlib
    0,
    flags.COMPRESSION_LZ4,
    flags.COMPRESSION_ZSTD,
    flags.COMPRESSION_ZLIB,
)
_COMMIT: Final = 8
_SEPARATOR: Final = "\x02"
_OTHER: Final = "other"  # a value that is replaced by a later one
_NOT_YET: Final = "19 "
_FOUND_BY: Final = (
    f"{PropertyName.KEYS}\x01",
    f"{PropertyName.UNIQ_KEY}\x01",
    f"{PropertyName.TAGS}\x01",
)
FOUND_SAMPLE: Final = 10  # of the keys of a topic are looked for
_BODY: Final = b"properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A message of the topic: its properties, as they have to be read."""

    value: str
    properties: Mapping[str, str]

    @property
    def keys(self) -> list[str]:
        return self.properties.get(PropertyName.KEYS, "").split()


class PropertyDrill:
    """One topic of one queue, and what was sent there."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._rng = drill.rng
        self._is_listed = drill.rng.random() < LISTED_SHARE
        self._topic = f"{'' if self._is_listed else UNLISTED}drills-properties-{group}"
        self._stored: list[_Sent] = []
        self._in_batches: set[int] = set()  # to which brokers may add nothing
        self._count = 0

    async def run(self) -> None:
        """Make the topic, send into it in all forms, and read it. Raises Unsure, EndedError."""
        if self._count:
            raise Unsure  # it was ended in the middle of that
        await make_topic(self.drill, self._topic)
        ways = [self._send_one, self._send_one, self._send_batch]
        if not self._is_listed:
            ways += [self._send_half]
        for _ in range(self._rng.randint(*SENDS)):
            await self._rng.choice(ways)()
        await self._read("*", "TAG", range(len(self._stored)))
        if not self._is_listed:
            await self._send_delayed()
        for _ in range(2):
            await self._read_some()
        await self._find()
        raise Unsure  # the next one makes a topic of its own

    # Blocks --------------------------------------------------------------------------------------

    def _make(self, *, more: Sequence[tuple[str, str]] = (), is_named: bool = False) -> str:
        """Draw a block that has a value of the workload, and `more`."""
        rng, number = self._rng, self._count
        self._count += 1
        value = f"{self._group}.properties-{number}"
        plain = "".join(filter(str.isalnum, self._group))
        entries = [(PROPERTY_VALUE, value), (PropertyName.TAGS, tag_of(value)), *more]
        if is_named or rng.random() >= NAMELESS_SHARE:
            entries.append((PropertyName.UNIQ_KEY, f"{plain}x{number}"))
        if rng.random() < 0.7:
            entries.append((PropertyName.KEYS, f"k{number // 3} {plain}k{number}"))
        entries += [(name, rng.choice(_VALUES)) for name in _NAMES if rng.random() < 0.4]
        entries += [pair for pair in _SYSTEM if rng.random() < 0.15]
        return block_of(entries, self._rng, has_empty=not self._is_listed)

    def _message(self, block: str, body: bytes) -> Message:
        """Return the message that a block says, as the history has it."""
        properties = parsed(block)
        return Message(
            topic=self._topic,
            body=body,
            tags=properties.pop(PropertyName.TAGS, None),
            keys=tuple(properties.pop(PropertyName.KEYS, "").split()),
            properties=properties,
            uniq_key=properties.get(PropertyName.UNIQ_KEY),
        )

    def _fields(self, block: str, sys_flag: int = 0) -> dict[str, str]:
        return {
            "a": f"{self._group}-producers",
            "b": self._topic,
            "c": DEFAULT_TOPIC,
            "d": "4",
            "e": "0",
            "f": str(sys_flag),
            "g": str(wall_ms()),
            "h": "0",
            "i": block,
            "j": "0",
            "k": "false",
            "n": self.drill.queue.broker_name,
        }

    # Sends ---------------------------------------------------------------------------------------

    async def _send_one(self) -> None:
        block, body, flag = self._make(), _BODY, 0
        if not self._is_listed and self._rng.random() < COMPRESSED_SHARE:
            kind = self._rng.choice(_COMPRESSIONS)
            body, flag = _compressed(body, kind), kind | flags.COMPRESSED
        fields, code = self._fields(block, flag), RequestCode.SEND_MESSAGE_V2
        if self._rng.random() < 0.4:
            fields = {LONG_NAMES[name]: value for name, value in fields.items()}
            code = RequestCode.SEND_MESSAGE
        await self._send([block], RemotingCommand(code=code, ext_fields=fields, body=body))

    async def _send_batch(self) -> None:
        blocks = [self._make() for _ in range(self._rng.randint(1, BATCH_MAX))]
        body = encode_batch_body(BatchItem(_BODY, block.encode(), 0) for block in blocks)
        fields = self._fields("") | {"m": "true"}
        code = RequestCode.SEND_BATCH_MESSAGE
        begin = len(self._stored)
        await self._send(blocks, RemotingCommand(code=code, ext_fields=fields, body=body))
        self._in_batches |= set(range(begin, len(self._stored)))

    async def _send(self, blocks: Sequence[str], command: RemotingCommand) -> None:
        what = f"place of {len(blocks)} messages in {self._topic}"
        if self._is_listed:
            messages = [self._message(block, _BODY) for block in blocks]
            answer = await self.drill.send(messages, command, queue_id=0)
            self.drill.record(what, expected=self._next(), answered=_show_place(answer))
        else:
            await self._request_send(what, command)
        self._add(blocks)

    async def _request_send(self, what: str, command: RemotingCommand) -> RemotingCommand:
        answer = await self.drill.request(
            what,
            RequestCode(command.code),
            command.ext_fields,
            body=command.body,
            expected=self._next(),
            show=_show_place,
            changes=True,
        )
        assert answer is not None
        return answer

    def _next(self) -> str:
        return f"0 0 {len(self._stored)}"

    def _add(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            properties = parsed(block)
            self._stored.append(_Sent(value=properties[PROPERTY_VALUE], properties=properties))

    async def _send_half(self) -> None:
        """Send a half and commit it: the message has the half's properties."""
        group = f"{self._group}-producers"
        marks = ((PropertyName.TRAN_MSG, "true"), (PropertyName.PGROUP, group))
        block = self._make(more=marks, is_named=True)
        # The last one of a name counts, and this one has to.
        block += f"{'' if block.endswith(_SEPARATOR) else _SEPARATOR}TRAN_MSG\x01true"
        uniq_key = parsed(block)[PropertyName.UNIQ_KEY]
        answer = await self.drill.request(
            f"send the half {uniq_key} of {self._topic}",
            RequestCode.SEND_MESSAGE_V2,
            self._fields(block, _PREPARED),
            body=_BODY,
            expected=f"0 {uniq_key}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('transactionId')}",
            changes=True,
        )
        assert answer is not None
        await self.drill.request(
            f"commit the half {uniq_key} of {self._topic}",
            RequestCode.END_TRANSACTION,
            {
                "tranStateTableOffset": answer.ext_fields["queueOffset"],
                "commitLogOffset": int(answer.ext_fields["msgId"][-16:], 16),
                "msgId": uniq_key,
                "producerGroup": group,
                "commitOrRollback": _COMMIT,
                "fromTransactionCheck": "false",
                "bname": self.drill.queue.broker_name,
            },
            expected="0",
            changes=True,
        )
        self._add([block])

    async def _send_delayed(self) -> None:
        """Send a message that waits, perhaps behind one that waits for hours, and read it once it
        is due: the other one does not come before it. Raises Unsure."""
        if self._rng.random() < LONG_SHARE:
            await self._send_waiting((PropertyName.DELAY, self._rng.choice(_LONG_LEVELS)))
        block = await self._send_waiting(self._rng.choice(_WAITS))
        at = len(self._stored)
        self._add([block])
        expected = f"0 {self._shown(at)}"

        def show(answer: RemotingCommand) -> str:
            shown = self._show_records(answer)
            return expected if shown == _NOT_YET else shown  # whether it is late, others judge

        answer = await self.drill.request(
            f"pull of what has waited at {at} of {self._topic}",
            RequestCode.PULL_MESSAGE,
            self._pull_fields("*", "TAG", at) | {"suspendTimeoutMillis": HELD_MS},
            expected=expected,
            show=show,
            is_calm=True,
        )
        if answer is None or answer.code != 0:
            raise Unsure

    async def _send_waiting(self, wait: tuple[str, str]) -> str:
        """Send a message that waits; return its block."""
        block = self._make(is_named=True)
        block += f"{'' if block.endswith(_SEPARATOR) else _SEPARATOR}{wait[0]}\x01{wait[1]}"
        await self.drill.request(
            f"send a message with {wait[0]} {wait[1]} to {self._topic}",
            RequestCode.SEND_MESSAGE_V2,
            self._fields(block),
            body=_BODY,
            expected="0",
            changes=True,
        )
        return block

    # Questions -----------------------------------------------------------------------------------

    async def _read(self, expression: str, kind: str, offsets: Sequence[int]) -> None:
        shown = [self._shown(at) for at in offsets]
        if not shown:
            return
        await self.drill.request(
            f"pull of {self._topic} with {expression}",
            RequestCode.PULL_MESSAGE,
            self._pull_fields(expression, kind, 0),
            expected=f"0 {'; '.join(shown)}",
            show=self._show_records,
            is_calm=True,
        )

    def _shown(self, offset: int) -> str:
        """Return how a message has to be shown."""
        return self._show(offset, {**self._stored[offset].properties, **_ADDED})

    def _show_records(self, answer: RemotingCommand) -> str:
        records = records_of(answer)
        shown = [
            self._show(each.queue_offset, each.property_map()) + _shown_body(each)
            for each in records
        ]
        return f"{answer.code} {'; '.join(shown)}"

    def _show(self, offset: int, properties: Mapping[str, str]) -> str:
        """Show a message by its properties; of a key that the broker has made, nothing."""
        hidden = _THEIRS | _ADDED.keys() if offset in self._in_batches else _THEIRS
        shown = [
            f"{name}={value!r}"
            for name, value in sorted(properties.items())
            if name not in hidden
            and not name.startswith(_TIMERS)
            and not (name == PropertyName.UNIQ_KEY and "group" not in value)
        ]
        return f"{offset}: {' '.join(shown)}"

    async def _read_some(self) -> None:
        """Pull by a tag, and by what one property is."""
        tag = self._rng.choice(self._stored).properties[PropertyName.TAGS]
        await self._read(tag, "TAG", self._with(PropertyName.TAGS, tag))
        named = [
            (name, each.properties[name])
            for each in self._stored
            for name in ("u_a", "u_b")
            if each.properties.get(name, "\x01").isalnum()
        ]
        if named:
            name, value = self._rng.choice(named)
            await self._read(f"{name} = '{value}'", "SQL92", self._with(name, value))

    def _with(self, name: str, value: str) -> list[int]:
        return [at for at, each in enumerate(self._stored) if each.properties.get(name) == value]

    async def _find(self) -> None:
        """Look for messages by the keys that count, and by those that don't."""
        named = [
            at for at, each in enumerate(self._stored) if PropertyName.UNIQ_KEY in each.properties
        ]
        for at in self._rng.sample(named, min(FOUND_SAMPLE, len(named))):
            sent = self._stored[at]
            key = sent.properties[PropertyName.UNIQ_KEY]
            await self.drill.find(self._topic, key, [f"{at}:{sent.value}"])
        words = sorted({word for each in self._stored for word in each.keys})
        for word in self._rng.sample(words, min(FOUND_SAMPLE, len(words))):
            await self._query(word)
        await self._query(_OTHER)

    async def _query(self, word: str) -> None:
        found = [str(at) for at, each in enumerate(self._stored) if word in each.keys]
        await self.drill.request(
            f"messages of {self._topic} under {word}",
            RequestCode.QUERY_MESSAGE,
            {
                "topic": self._topic,
                "key": word,
                "maxNum": FOUND_MAX,
                "beginTimestamp": 0,
                "endTimestamp": FOREVER_MS,
            },
            expected=" ".join(["0" if found else "22", *found]),
            show=lambda answer: " ".join([str(answer.code), *sorted(_offsets(answer), key=int)]),
        )

    def _pull_fields(self, expression: str, kind: str, offset: int) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self.drill.queue.broker_name,
            "consumerGroup": self._group,
            "queueOffset": offset,
            "maxMsgNums": FOUND_MAX,
            "sysFlag": _WITH_SUBSCRIPTION | _HELD,
            "commitOffset": 0,
            "suspendTimeoutMillis": 50,
            "subVersion": 0,
            "subscription": expression,
            "expressionType": kind,
        }


def _compressed(body: bytes, kind: int) -> bytes:
    """Compress a body as a type of the system flag says."""
    match kind:
        case flags.COMPRESSION_LZ4:
            return bytes(lz4.frame.compress(body))
        case flags.COMPRESSION_ZSTD:
            return zstandard.ZstdCompressor().compress(body)
        case _:
            return zlib.compress(body)


def _shown_body(record: MessageRecord) -> str:
    """Show a body, as a consumer decompresses it, where it is another than was sent."""
    try:
        body = decompress_body(record.body, record.sys_flag)
    except RecordError as error:
        return f" {error}"
    return "" if body == _BODY else f" {body!r}"


def block_of(
    entries: Sequence[tuple[str, str]], rng: random.Random, *, has_empty: bool = True
) -> str:
    """Write entries as a block, in any order, with what does not count among them; `has_empty`:
    values that are empty, too, which the digests of the run format cover."""
    parts = [f"{name}\x01{value}" for name, value in entries]
    rng.shuffle(parts)
    for name, _ in entries:
        if rng.random() < NOISE_SHARE / 2:  # an earlier one, of another value
            parts.insert(0, f"{name}\x01{_OTHER}")
        if has_empty and rng.random() < NOISE_SHARE / 3:
            parts.insert(rng.randint(0, len(parts)), f"{name}\x01")
    for noise in ("", "x", "\x01no name", *(("u_c\x01",) if has_empty else ())):
        if rng.random() < NOISE_SHARE:
            parts.insert(rng.randint(0, len(parts)), noise)
    found_by = [part for part in parts if part.startswith(_FOUND_BY) and not part.endswith(_OTHER)]
    if found_by and rng.random() < LAST_SHARE:
        last = rng.choice(found_by)
        parts.remove(last)
        parts.append(last)
    end = "" if rng.random() < DIALECT_SHARE else _SEPARATOR
    return _SEPARATOR.join(parts) + end


def parsed(block: str) -> dict[str, str]:
    """Return the properties that a block says."""
    properties = {}
    for part in block.split(_SEPARATOR):
        at = part.find("\x01")
        if 0 < at < len(part) - 1:
            properties[part[:at]] = part[at + 1 :]
    return properties


def _show_place(answer: RemotingCommand) -> str:
    field = answer.ext_fields.get
    return f"{answer.code} {field('queueId')} {field('queueOffset')}"


def _offsets(answer: RemotingCommand) -> list[str]:
    return [str(record.queue_offset) for record in records_of(answer)]
