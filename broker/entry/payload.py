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
NO_WORDS = 1
"""The flag of a payload none of whose records has a property KEYS; without it, any may."""


class PayloadError(ValueError):
    """A payload that this version can't have written; says what was wrong."""


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
        """Bytes from the first record to the last one's end; a leader of ours lays a run's records
        down one behind the other."""
        first: int = UNIT.unpack_from(self.units)[0]
        last, size, _ = UNIT.unpack_from(self.units, len(self.units) - UNIT_SIZE)
        return int(last + size - first)


@dataclass(frozen=True, slots=True)
class TopicCommand:
    """Creates or replaces a topic (RocketMQ TopicConfig)."""

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
    """Creates or replaces a subscription group; `config` has RocketMQ's field names."""

    name: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OffsetCommand:
    """A consumer group's next queue offset; also the half queue's progress."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class DecideCommand:
    """The decision on a half; stands in the entry that holds its op record (and final message)."""

    half_queue_offset: int
    half_position: int
    decision: str  # "commit" or "rollback"
    from_check: bool


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """One more check of the half is about to be asked."""

    half_queue_offset: int


@dataclass(frozen=True, slots=True)
class DiscardCommand:
    """The half has used up its checks; its copy is in the same entry."""

    half_queue_offset: int


@dataclass(frozen=True, slots=True)
class DeliverCommand:
    """Delayed messages [first_offset, next_offset) of a schedule queue are in the same entry."""

    queue_id: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class DeleteTopicCommand:
    """The topic goes, with its consumer offsets; its queues get a floor at their end. The last
    command of its entry: what is sent after it is stored above the floor."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteGroupCommand:
    """The group's configuration goes, with `clean_offset` its offsets too."""

    name: str
    clean_offset: bool


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """The group shall go on at these offsets: rows of queue id and offset."""

    group: str
    topic: str
    offsets: list[list[int]]


@dataclass(frozen=True, slots=True)
class ResumeCommand:
    """The half whose copy stands at this offset of TRANS_CHECK_MAX_TIME_TOPIC is in the same entry
    again."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class ClearResetCommand:
    """The group went on from the offset that a reset named."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LockCommand:
    """A client of an orderly group owns these queues from now on: rows of topic and queue id.

    `claim` counts how often the client has given queues back; 0 where it doesn't count.
    """

    group: str
    client_id: str
    queues: list[list[Any]]
    claim: int = 0


@dataclass(frozen=True, slots=True)
class UnlockCommand:
    """The client owns these queues no more; those that it doesn't own stay with their owners, and
    those that it has claimed anew since with it."""

    group: str
    client_id: str
    queues: list[list[Any]]
    claim: int = 0


@dataclass(frozen=True, slots=True)
class DeliverTimersCommand:
    """Messages of rmq_sys_wheel_timer are in the same entry under their real topics."""

    queue_offsets: list[int]


@dataclass(frozen=True, slots=True)
class RecallTimerCommand:
    """A message of rmq_sys_wheel_timer will not be delivered."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class UserCommand:
    """Creates or replaces a user of RocketMQ 5.x, whole; requests are signed with the password."""

    name: str
    password: str = field(repr=False)
    kind: str  # "Normal" or "Super"
    status: str  # "enable" or "disable"


@dataclass(frozen=True, slots=True)
class DeleteUserCommand:
    """The user goes, with what it was granted."""

    name: str


@dataclass(frozen=True, slots=True)
class GrantCommand:
    """All that a user may do from now on: rows of policy, resource, actions, sources, decision."""

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
    """As it stands in a table."""
    packed: bytes = msgpack.packb(
        [_NAME_OF[type(command)], *(getattr(command, name) for name in command.__slots__)]
    )
    return packed


def encode_table(store_timestamp_ms: int, runs: Sequence[Run], commands: Sequence[bytes]) -> bytes:
    """The table alone, of commands that are encoded already; its size does not depend on the
    positions within the units."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(3)
    packer.pack(store_timestamp_ms)
    packer.pack(
        [
            [run.topic, run.queue_id, run.first_queue_offset, run.units, run.uniq_keys]
            for run in runs
        ]
    )
    packer.pack_array_header(len(commands))
    return b"".join((packer.bytes(), *commands))


def encode_header(table_size: int, flags: int = 0, births_ahead_ms: int = 0) -> bytes:
    """`births_ahead_ms` may have any value; what it can't be is the nearest that it can be."""
    births_ahead_ms = min(max(births_ahead_ms, 0), _BIRTHS_AHEAD_MS_MAX)
    return PAYLOAD_HEADER.pack(_VERSION, flags, births_ahead_ms, table_size)


def decode_payload(payload: bytes) -> Payload:
    """Raises PayloadError naming what was wrong."""
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
