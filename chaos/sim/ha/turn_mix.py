"""Entries that stand beside a broker's own in one turn of its loop: with messages and without.

Place in the data path: `ha_machine` proposes them through the engine's seam, right behind what the
broker has proposed. The proposer of a broker leaves one entry a turn, with messages and commands in
it together; the seam allows any number, of any kind, and each of them has an answer of its own.

Invariants: offsets of the queue beside follow one another within a life, from where the state
machine stands; an entry is of messages alone or of a command alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from broker.entry.payload import (
    UNIT,
    OffsetCommand,
    Run,
    encode_command,
    encode_header,
    encode_table,
)
from broker.state.state import BrokerState
from raft.replicated_log import Slot
from remoting.records.message import MessageRecord, encode_record

__all__ = ["TOPIC_BESIDE", "TurnMix"]

TOPIC_BESIDE: Final = "beside"
_GROUP: Final = "beside"
_COUNT_MAX: Final = 3
_MESSAGES_MAX: Final = 2
_MESSAGE_RATE: Final = 0.5
_BODY_SIZE_MAX: Final = 40
_TAGS_CODE: Final = 0


class TurnMix:
    """What one life of a broker proposes beside its own. `rate`: share of its proposals that get
    company; `life` goes into the names of the messages."""

    def __init__(self, state: BrokerState, rng: random.Random, *, rate: float, life: str) -> None:
        self._state = state
        self._rng = rng
        self._rate = rate
        self._life = life
        self._stored_ms = 0
        self._next_offset = 0
        self._sent = 0

    def draw(self, stored_ms: int) -> list[int]:
        """Return how many messages each of the entries has that go beside one of `stored_ms`; 0: a
        command."""
        rng, self._stored_ms = self._rng, stored_ms
        if rng.random() >= self._rate:
            return []
        return [
            rng.randint(1, _MESSAGES_MAX) if rng.random() < _MESSAGE_RATE else 0
            for _ in range(rng.randint(1, _COUNT_MAX))
        ]

    def fill(self, count: int) -> Callable[[Slot], bytes]:
        """Return what makes the payload of `count` messages, or of a command, for a slot."""
        if not count:
            self._sent += 1
            command = encode_command(OffsetCommand(_GROUP, TOPIC_BESIDE, 0, self._sent))
            return lambda _slot: self._payload([], [], [command])
        first = max(self._next_offset, self._state.next_offset(TOPIC_BESIDE, 0))
        bodies = [self._body() for _ in range(count)]
        return lambda slot: self._of_messages(slot, first, bodies)

    def stored(self, count: int) -> None:
        """The log has taken an entry of `count` messages."""
        if count:
            first = max(self._next_offset, self._state.next_offset(TOPIC_BESIDE, 0))
            self._next_offset = first + count

    def _body(self) -> bytes:
        self._sent += 1
        name = f"{self._life}-{self._sent} ".encode()
        return name + b"x" * self._rng.randrange(_BODY_SIZE_MAX)

    def _of_messages(self, slot: Slot, first: int, bodies: list[bytes]) -> bytes:
        sizes = [len(self._record(body, first, 0)) for body in bodies]

        def run_at(position: int) -> Run:
            units = []
            for size in sizes:
                units.append(UNIT.pack(position, size, _TAGS_CODE))
                position += size
            return Run(TOPIC_BESIDE, 0, first, b"".join(units), None)

        stored_ms = self._stored_ms
        at = slot.position + len(encode_header(0)) + len(encode_table(stored_ms, [run_at(0)], []))
        records, begin = [], at
        for number, body in enumerate(bodies):
            records.append(self._record(body, first + number, at))
            at += sizes[number]
        return self._payload([run_at(begin)], records, [])

    def _record(self, body: bytes, queue_offset: int, position: int) -> bytes:
        stored_ms = self._stored_ms
        return encode_record(
            MessageRecord(
                topic=TOPIC_BESIDE,
                queue_id=0,
                body=body,
                properties=b"",
                queue_offset=queue_offset,
                physical_offset=position,
                born_timestamp_ms=stored_ms,
                store_timestamp_ms=stored_ms,
            )
        )

    def _payload(self, runs: list[Run], records: list[bytes], commands: list[bytes]) -> bytes:
        table = encode_table(self._stored_ms, runs, commands)
        return b"".join((encode_header(len(table)), table, *records))
