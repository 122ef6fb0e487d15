"""Context of all processors of one broker: its parts, in one place.

It has no logic beyond three things that all processors need: the check that this node leads and is
ready, the remark of a refusal if not, and the bytes at a log position.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.config.config import BrokerConfig
from broker.entry.payload import UNIT
from broker.entry.record import host_bytes
from broker.entry.topics import system_topics
from broker.leader.busy import BusyHoldings
from broker.leader.proposer import Proposer
from broker.leader.rebalance_lock import RebalanceLocks
from broker.queues.consume_queues import ConsumeQueues
from broker.request.clients import Clients
from broker.request.clock_exchange import ClockExchange
from broker.request.long_polling import LongPolling
from broker.request.pop_polling import PopPolling
from broker.request.pull_offsets import PullOffsets
from broker.request.request import RefusedError, Request
from broker.request.stats import Stats
from broker.state.state import BrokerState
from raft.log.damage import DamagedLogError
from raft.replicated_log import ReplicatedLog
from raft.stalls import Stalls
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import ResponseCode
from remoting.protocol.leader_hint import not_leader_remark
from remoting.records.message import UniqueIdGenerator, decode_record

__all__ = ["BrokerContext"]

_RECORD_OVERHEAD_MAX = 65_536  # fixed fields, topic and properties


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    config: BrokerConfig
    log: ReplicatedLog
    state: BrokerState
    queues: ConsumeQueues
    proposer: Proposer
    clients: Clients
    long_polling: LongPolling
    clocks: ClockExchange
    clock_ms: Callable[[], int]  # the group's time: stamps, and deadlines counted from them
    random: random.Random
    unique_ids: UniqueIdGenerator
    broker_addresses: Mapping[str, str]  # node -> remoting address, where known
    locks: RebalanceLocks = field(default_factory=RebalanceLocks)
    pop_polling: PopPolling = field(default_factory=PopPolling)
    pop_busy: BusyHoldings = field(default_factory=BusyHoldings)
    remoting: RemotingClient | None = None  # for requests to others
    # This process's own deadlines: a clock that never jumps.
    monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000
    stats: Stats = field(default_factory=Stats)
    pull_offsets: PullOffsets = field(default_factory=PullOffsets)
    # Whether the sender may create and change super users; all may where access control is off.
    is_super: Callable[[Request], bool] = lambda _: True
    want_of_room: str | None = None  # why the disk has no room, by the last check; None: it has
    settings_changes: int = 0  # since this process began
    routes_changed: Callable[[], None] = lambda: None  # notifies name servers
    # Likewise, and calls its argument when they have been notified.
    when_routes_told: Callable[[Callable[[], None]], None] = lambda answer: answer()
    # Whether a client authorised under this account may receive what is sent to a topic.
    may_publish: Callable[[str | None, str], bool] = lambda account, topic: True
    retain_now: Callable[[], None] = lambda: None  # deletes expired messages at any hour
    stalls: Stalls | None = None  # measurements of what blocked the loop, if any
    store_address: str = ""  # "ip:port" in records and message ids; default: what is advertised
    ready: bool = False  # this node leads and may propose, by the log's last notice
    term: int = 0
    store_host: bytes = field(init=False)
    store_host_hex: str = field(init=False)
    own_topics: frozenset[str] = field(init=False)  # which every broker of this name has

    def __post_init__(self) -> None:
        self.store_address = self.store_address or self.config.advertised
        self.store_host = host_bytes(self.store_address)
        self.store_host_hex = self.store_host.hex().upper()
        self.own_topics = frozenset(system_topics(self.config.cluster, self.config.group))

    def require_leader(self) -> None:
        """Raises RefusedError (14, definite) unless this node may propose now."""
        if not self.ready:
            raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, self.not_leader_remark())
        if self.want_of_room is not None:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now. It may be caused by the disk being full: "
                f"{self.want_of_room}",
            )

    def not_leader_remark(self) -> str:
        leader = self.log.status().leader_id
        return not_leader_remark(None if leader is None else self.broker_addresses.get(leader))

    def committed_record(self, position: int) -> bytes:
        """Return the record at `position`, if a committed message of a queue begins there.

        Clients may send any position, so the queue's own unit has to name it. Raises LookupError
        and RecordError, and RefusedError as `read` does.
        """
        size = int.from_bytes(self.read(position, 4), "big")
        if size > self.config.message_size_max + _RECORD_OVERHEAD_MAX:
            raise LookupError(f"no message begins at {position}")
        record = self.read(position, size)
        header = decode_record(record)
        queue = self.queues.find(header.topic, header.queue_id)
        unit = b"" if queue is None else queue.read(header.queue_offset, 1)
        if not unit or UNIT.unpack(unit)[0] != position:
            raise LookupError(f"no committed message begins at {position}")
        return record

    def read_record(self, position: int) -> bytes:
        """Return the record at a position. Raises LookupError, and RefusedError as `read` does."""
        size = int.from_bytes(self.read(position, 4), "big")
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
