"""The payload of a data entry: a table (runs and commands) and the message records behind it.

Place in the data path: `broker.leader.proposer` encodes one payload per batch,
`broker.queues.state_machine` decodes it on every replica. The table carries what a replica needs so
that it never has to parse records one by one: ready ConsumeQueue units and the keys for
deduplication. Layout: docs/FORMATS.md section 4.

Invariants: every record stands in exactly one run; the units of a run are in queue order, without
a hole; `decode_payload` never reads the records.

| offset | size | field                    |
|--------|------|--------------------------|
| 0      | 1    | version, 1               |
| 1      | 1    | NO_WORDS, or 0           |
| 2      | 2    | BIRTHS_AHEAD_MS          |
| 4      | 4    | size T of the table      |
| 8      | T    | table, msgpack           |
| 8+T    | rest | records                  |

BIRTHS_AHEAD_MS: how far the newest birth of its messages is ahead of the store timestamp, 0 where
none is, at most 65,535.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgpack
import msgspec

from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopCommands,
    PopOrderCommand,
    RequestModeCommand,
    ReviveCommand,
)

__all__ = [
    "NO_WORDS",
    "PAYLOAD_HEADER",
    "UNIT",
    "UNIT_SIZE",
    "CheckCommand",
    "ClearResetCommand",
    "Command",
    "DecideCommand",
    "DeleteGroupCommand",
    "DeleteTopicCommand",
    "DeleteUserCommand",
    "DeliverCommand",
    "DeliverTimersCommand",
    "DiscardCommand",
    "GrantCommand",
    "GroupCommand",
    "LockCommand",
    "OffsetCommand",
    "Payload",
    "PayloadError",
    "RecallTimerCommand",
    "ResetCommand",
    "ResumeCommand",
    "Run",
    "TopicCommand",
    "UnlockCommand",
    "UserCommand",
    "decode_payload",
    "encode_command",
    "encode_header",
    "encode_table",
]

PAYLOAD_HEADER = struct.Struct(">BBHI")  # version, flags, births ahead, size of the table
assert PAYLOAD_HEADER.size == 8
UNIT = struct.Struct(">QIq")  # position of the record, its size, tags code
UNIT_SIZE = 20
assert UNIT.size == UNIT_SIZE
_VERSION = 1
_BIRTHS_AHEAD_MS_MAX = 0xFFFF
_LIST_OF_TWO = 0x92
_LIST_OF_THREE = b"\x93"
_encode = msgspec.msgpack.Encoder().encode
NO_WORDS = 1
"""The flag of a payload none of whose records has a property KEYS; without it, any may."""


class PayloadError(ValueError):
    """Payload that this version can't have written; the text says what is wrong."""


@dataclass(slots=True)
class Run:
    """Consecutive records of one queue. `units` are ready to be appended to its ConsumeQueue."""

    topic: str
    queue_id: int
    first_queue_offset: int
    units: bytes
    uniq_keys: Sequence[str | None] | None

    @property
    def count(self) -> int:
        return len(self.units) // UNIT_SIZE

    @property
    def size(self) -> int:
        """Return the bytes from the first record to the end of the last: a leader writes the
        records of a run one after the other."""
        first: int = UNIT.unpack_from(self.units)[0]
        last, size, _ = UNIT.unpack_from(self.units, len(self.units) - UNIT_SIZE)
        return int(last + size - first)


@dataclass(frozen=True, slots=True)
class TopicCommand:
    """Command that creates or replaces a topic (RocketMQ TopicConfig)."""

    name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    filter_type: str
    sys_flag: int
    order: bool
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class GroupCommand:
    """Command that creates or replaces a subscription group, by RocketMQ's field names."""

    name: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OffsetCommand:
    """Command that commits a group's next queue offset; also the half queue's progress."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class DecideCommand:
    """Decision on a half, in the entry that holds its op record (and final message)."""

    half_queue_offset: int
    half_position: int
    decision: str  # "commit" or "rollback"
    from_check: bool


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """Command that counts one more check of a half, before it is sent."""

    half_queue_offset: int


@dataclass(frozen=True, slots=True)
class DiscardCommand:
    """Command that ends a half which has used up its checks; its copy is in the same entry."""

    half_queue_offset: int


@dataclass(frozen=True, slots=True)
class DeliverCommand:
    """Delivery of [first_offset, next_offset) of a schedule queue, stored in the same entry."""

    queue_id: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class DeleteTopicCommand:
    """Command that deletes a topic and its consumer offsets; its queues get a floor at their end.

    It is the last command of its entry: messages sent after it are stored above the floor.
    """

    name: str


@dataclass(frozen=True, slots=True)
class DeleteGroupCommand:
    """Command that deletes a group's configuration, and with `clean_offset` its offsets."""

    name: str
    clean_offset: bool


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """Command that resets a group's offsets in a topic: rows of queue id and offset."""

    group: str
    topic: str
    offsets: list[list[int]]


@dataclass(frozen=True, slots=True)
class ResumeCommand:
    """Command that resumes a half, stored again in the same entry; `offset` is that of its copy in
    TRANS_CHECK_MAX_TIME_TOPIC."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class ClearResetCommand:
    """Command that ends a pending reset: the group has continued from its offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LockCommand:
    """Command that makes a client of an orderly group own queues: rows of topic and queue id.

    `claim` counts how often the client has given queues back; 0 if it doesn't count.
    """

    group: str
    client_id: str
    queues: list[list[Any]]
    claim: int = 0


@dataclass(frozen=True, slots=True)
class UnlockCommand:
    """Command that ends a client's ownership of queues; queues of other owners stay theirs, and
    queues that the client has claimed again since stay its own."""

    group: str
    client_id: str
    queues: list[list[Any]]
    claim: int = 0


@dataclass(frozen=True, slots=True)
class DeliverTimersCommand:
    """Delivery of messages of rmq_sys_wheel_timer, stored in the same entry in their topics."""

    queue_offsets: list[int]


@dataclass(frozen=True, slots=True)
class RecallTimerCommand:
    """Command that cancels the delivery of a message of rmq_sys_wheel_timer."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class UserCommand:
    """Command that creates or replaces a user of RocketMQ 5.x; the password signs requests."""

    name: str
    password: str = field(repr=False)
    kind: str  # "Normal" or "Super"
    status: str  # "enable" or "disable"


@dataclass(frozen=True, slots=True)
class DeleteUserCommand:
    """Command that deletes a user and the user's permissions."""

    name: str


@dataclass(frozen=True, slots=True)
class GrantCommand:
    """Command that replaces a user's permissions: policy, resource, actions, sources, decision."""

    user: str
    entries: list[list[Any]]


Command: TypeAlias = (
    TopicCommand
    | GroupCommand
    | OffsetCommand
    | DecideCommand
    | CheckCommand
    | DiscardCommand
    | DeliverCommand
    | DeliverTimersCommand
    | RecallTimerCommand
    | DeleteTopicCommand
    | DeleteGroupCommand
    | ResetCommand
    | ClearResetCommand
    | ResumeCommand
    | LockCommand
    | UnlockCommand
    | UserCommand
    | DeleteUserCommand
    | GrantCommand
    | PopCommands
)

_NAME_OF: dict[type, str] = {
    TopicCommand: "topic",
    GroupCommand: "group",
    OffsetCommand: "offset",
    DecideCommand: "decide",
    CheckCommand: "check",
    DiscardCommand: "discard",
    DeliverCommand: "deliver",
    DeliverTimersCommand: "deliver_timers",
    RecallTimerCommand: "recall_timer",
    DeleteTopicCommand: "delete_topic",
    DeleteGroupCommand: "delete_group",
    ResetCommand: "reset",
    ClearResetCommand: "clear_reset",
    ResumeCommand: "resume",
    LockCommand: "lock",
    UnlockCommand: "unlock",
    UserCommand: "user",
    DeleteUserCommand: "delete_user",
    GrantCommand: "grant",
    PopCommand: "pop",
    PopOrderCommand: "pop_order",
    AckCommand: "ack",
    AckOrderCommand: "ack_order",
    ChangeInvisibleCommand: "invisible",
    ReviveCommand: "revive",
    RequestModeCommand: "request_mode",
}
_TYPE_OF = {name: kind for kind, name in _NAME_OF.items()}


@dataclass(slots=True)
class Payload:
    store_timestamp_ms: int
    runs: list[Run]
    commands: list[Command]
    may_have_words: bool = True  # of KEYS, in some record
    births_ahead_ms: int = 0  # how far some message's birth is ahead of the store timestamp


def encode_command(command: Command) -> bytes:
    """Return a command as a table holds it."""
    packed: bytes = msgpack.packb(
        [_NAME_OF[type(command)], *(getattr(command, name) for name in command.__slots__)]
    )
    return packed


def encode_table(store_timestamp_ms: int, runs: Sequence[Run], commands: Sequence[bytes]) -> bytes:
    """Return the table of encoded commands and runs; its size does not depend on the positions
    within the units."""
    rows = [
        [run.topic, run.queue_id, run.first_queue_offset, run.units, run.uniq_keys] for run in runs
    ]
    # One list of three; its last member is a list again, of what is encoded already.
    if not commands:
        return _encode([store_timestamp_ms, rows, ()])
    head = _encode([store_timestamp_ms, rows])
    assert head[0] == _LIST_OF_TWO
    count = msgpack.Packer().pack_array_header(len(commands))
    return b"".join((_LIST_OF_THREE, memoryview(head)[1:], count, *commands))


def encode_header(table_size: int, flags: int = 0, births_ahead_ms: int = 0) -> bytes:
    """Return a payload's header; `births_ahead_ms` is clamped to the range of its field."""
    births_ahead_ms = min(max(births_ahead_ms, 0), _BIRTHS_AHEAD_MS_MAX)
    return PAYLOAD_HEADER.pack(_VERSION, flags, births_ahead_ms, table_size)


def decode_payload(payload: bytes) -> Payload:
    """Return the decoded table of a payload. Raises PayloadError that says what is wrong."""
    if len(payload) < PAYLOAD_HEADER.size:
        raise PayloadError(f"payload of {len(payload)} bytes is shorter than its header")
    version, flags, births_ahead_ms, table_size = PAYLOAD_HEADER.unpack_from(payload)
    if version != _VERSION:
        raise PayloadError(f"payload version {version}, expected {_VERSION}")
    if PAYLOAD_HEADER.size + table_size > len(payload):
        raise PayloadError(f"table of {table_size} bytes is longer than the payload")
    try:
        store_timestamp_ms, runs, commands = msgpack.unpackb(
            memoryview(payload)[PAYLOAD_HEADER.size : PAYLOAD_HEADER.size + table_size],
            strict_map_key=False,
        )
        return Payload(
            store_timestamp_ms,
            [Run(*run) for run in runs],
            [_TYPE_OF[command[0]](*command[1:]) for command in commands],
            not flags & NO_WORDS,
            births_ahead_ms,
        )
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise PayloadError(f"table can't be read: {error!r}") from error
