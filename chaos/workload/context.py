"""The context that all parts of the workload share: table addresses, history, settings.

Place in the data path: made once by `chaos.experiment.load`, handed to senders and readers.

Invariant: a client of slot S dials through the proxies of S and no others.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chaos.recording.history import HistoryWriter, QueueRow
from chaos.scenario.part_sections import part_settings
from chaos.scenario.scenario import Scenario
from chaos.worlds.world import World
from client.connection.instance import InstanceSettings
from client.connection.routes import RouteSettings
from client.connection.send_codec import Compression, CompressionType
from client.message import MessageQueue
from remoting.protocol.acl_signature import Signer
from remoting.protocol.command import SerializeType

__all__ = ["Slot", "WorkContext", "queue_row"]

HEARTBEAT_MS = 30_000  # RocketMQ's
BEATS_PER_SILENCE = 4
ROUTE_POLL_MS = 2_500  # RocketMQ polls every 30 s; runs are short


_COMPRESSED_FROM = 128  # bytes: bodies of the workload are small


@dataclass(slots=True, kw_only=True)
class Slot:
    """A place from which clients dial. `next_client` returns a new instance name each time.

    `signer`: the account of its clients; None where the cluster has no access control.
    `serialize_type`: the encoding of their headers. `namespace`: that of its clients, empty: none.
    `heartbeat_ms`: how often they tell brokers that they are there.
    """

    name: str
    dial: Mapping[str, str]
    rng: random.Random
    signer: Signer | None = None
    serialize_type: SerializeType = SerializeType.JSON
    namespace: str = ""
    heartbeat_ms: int = HEARTBEAT_MS
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_client(self) -> str:
        return f"{self.name}.{next(self.numbers)}"

    def compression(self, kind: CompressionType | None = None) -> Compression:
        """Return how a producer of this slot compresses; without `kind` each slot has its own."""
        kinds = tuple(CompressionType)
        kind = kind or kinds[zlib.crc32(self.name.encode()) % len(kinds)]
        return Compression(size_bytes_min=_COMPRESSED_FROM, kind=kind)

    def instance_settings(self, signer: Signer | None = None) -> InstanceSettings:
        """Return a new client's settings; `signer`: an account of its own."""
        # Clients that begin at one instant of virtual time have one process and one clock: an
        # address of its own in the loopback network tells their ids apart.
        own = ".".join(str(self.rng.randrange(256)) for _ in range(3))
        return InstanceSettings(
            ip=f"127.{own}",
            routes=RouteSettings(poll_interval_ms=ROUTE_POLL_MS),
            seed=self.rng.getrandbits(32),
            signer=signer or self.signer,
            namespace=self.namespace,
            serialize_type=self.serialize_type,
            heartbeat_interval_ms=self.heartbeat_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """The shared context.

    `queues`: those of the workload's own topics, in one order; `part_queues`: those of each part's
    topics; `nodes`: voter by table address; `signer`: the account of all clients.
    """

    scenario: Scenario
    world: World
    history: HistoryWriter
    queues: Sequence[MessageQueue]
    nodes: Mapping[str, str]
    part_queues: Mapping[str, Sequence[MessageQueue]] = field(default_factory=dict)
    signer: Signer | None = None

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self.world.layout.name_server_addresses

    @property
    def all_queues(self) -> list[MessageQueue]:
        return [*self.queues, *(q for queues in self.part_queues.values() for q in queues)]

    def slot(self, name: str, rng: random.Random) -> Slot:
        dial = self.world.dial_table(name)
        silence_ms = part_settings(self.scenario.parts).get("client_silence_ms_max")
        heartbeat_ms = silence_ms // BEATS_PER_SILENCE if silence_ms else HEARTBEAT_MS
        return Slot(
            name=name,
            dial=dial,
            rng=rng,
            signer=self.signer,
            serialize_type=_serialize_type(name, self.scenario.workload.binary_share),
            heartbeat_ms=heartbeat_ms,
        )

    def node(self, address: str) -> str | None:
        return self.nodes.get(address)


def _serialize_type(slot: str, binary_share: float) -> SerializeType:
    """Choose by the name, so that the other choices of a seed are the same with any share."""
    is_binary = zlib.crc32(f"{slot} headers".encode()) < binary_share * (1 << 32)
    return SerializeType.ROCKETMQ if is_binary else SerializeType.JSON


def queue_row(queue: MessageQueue) -> QueueRow:
    return QueueRow(broker_group=queue.broker_name, topic=queue.topic, queue=queue.queue_id)
