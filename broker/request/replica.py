"""What every replica of a group reads: its settings, its log and what it has computed from that.

Place in the data path: handlers read from it whether this node leads or follows. It holds no
decision: whether this node may answer or propose is `broker.request.leadership`, and who is
connected to it is `broker.request.desk`.

Invariants: nothing here changes replicated state; bytes that are damaged on this disk are refused,
never returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.config.config import MESSAGE_SIZE_MAX, BrokerConfig
from broker.entry.payload import UNIT
from broker.entry.record import host_bytes
from broker.entry.topics import system_topics
from broker.queues.consume_queues import ConsumeQueues
from broker.request.clock_exchange import ClockExchange
from broker.request.request import RefusedError
from broker.state.state import BrokerState
from raft.log.damage import DamagedLogError
from raft.replicated_log import ReplicatedLog
from remoting.protocol.codes import ResponseCode
from remoting.records.message import decode_record

__all__ = ["Replica"]

_RECORD_OVERHEAD_MAX = 65_536  # fixed fields, topic and properties


@dataclass(slots=True, kw_only=True)
class Replica:
    """One replica's log, state, queues and clocks, and how it is set up."""

    config: BrokerConfig
    log: ReplicatedLog
    state: BrokerState
    queues: ConsumeQueues
    clocks: ClockExchange
    clock_ms: Callable[[], int]  # the group's time: stamps, and deadlines counted from them
    # This process's own deadlines: a clock that never jumps.
    monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    broker_addresses: Mapping[str, str]  # node -> remoting address, where known
    store_address: str = ""  # "ip:port" in records and message ids; default: what is advertised
    settings_changes: int = 0  # since this process began
    store_host: bytes = field(init=False)
    store_host_hex: str = field(init=False)
    own_topics: frozenset[str] = field(init=False)  # which every broker of this name has

    def __post_init__(self) -> None:
        self.store_address = self.store_address or self.config.advertised
        self.store_host = host_bytes(self.store_address)
        self.store_host_hex = self.store_host.hex().upper()
        self.own_topics = frozenset(system_topics(self.config.cluster, self.config.group))

    def change_settings(self, config: BrokerConfig) -> None:
        """Take over settings that an operator has changed; routes carry how many did."""
        self.config = config
        self.settings_changes += 1

    def committed_record(self, position: int) -> bytes:
        """Return the record at `position`, if a committed message of a queue begins there.

        Clients may send any position, so the queue's own unit has to name it. Raises LookupError
        and RecordError, and RefusedError as `read` does.
        """
        record = self.read_record(position)
        header = decode_record(record)
        queue = self.queues.find(header.topic, header.queue_id)
        unit = b"" if queue is None else queue.read(header.queue_offset, 1)
        if not unit or UNIT.unpack(unit)[0] != position:
            raise LookupError(f"no committed message begins at {position}")
        return record

    def read_record(self, position: int) -> bytes:
        """Return the record at a position. Raises LookupError, and RefusedError as `read` does."""
        size = int.from_bytes(self.read(position, 4), "big")
        # Not by the present setting: what was stored under a larger one is still there.
        if size > MESSAGE_SIZE_MAX + _RECORD_OVERHEAD_MAX:
            raise LookupError(f"no message begins at {position}")
        return self.read(position, size)

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the log as stored.

        Raises LookupError if the log doesn't have them, RefusedError (1: retry) if they are damaged
        on this replica's disk, until a good copy is fetched from another.
        """
        try:
            return self.log.read(position, size)
        except DamagedLogError as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"what stands at {position} is damaged here and is fetched from another replica",
            ) from error
