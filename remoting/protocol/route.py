"""Routes, topic configurations and broker registrations, and their bodies on the wire.

Place in the data path: values that brokers, name servers and clients share. A broker registers a
RegisterBrokerBody with every name server; a client requests a TopicRouteData and sends to the
brokers in it.

Encoding is standard JSON; what Java peers write is decoded too (`remoting.protocol.fastjson`). Two
forms of registration exist: JSON, and one zlib stream of

| size | field |
|---|---|
| 4 + n | length, DataVersion as JSON |
| 4 | number of topics |
| 4 + n, repeated | length, text `name read_queues write_queues perm filter_type {attributes}` |
| 4 + n | length, list of filter servers as JSON |
| 4, and 4 + n repeated | (from 5.0) number of queue mappings; length, mapping as JSON |

Queue mappings belong to static topics, which ledgermq does not have: they are skipped.

Source: RocketMQ TopicRouteData, RegisterBrokerBody, TopicConfig, DataVersion, ClusterInfo.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated, Final

import msgspec
from msgspec import field

from remoting.errors import BodyError
from remoting.protocol import fastjson

__all__ = [
    "MASTER_ID",
    "PERM_INHERIT",
    "PERM_READ",
    "PERM_WRITE",
    "QUEUES_MAX",
    "BrokerData",
    "BrokerMemberGroup",
    "ClusterInfo",
    "DataVersion",
    "QueueData",
    "RegisterBrokerBody",
    "TopicConfig",
    "TopicList",
    "TopicRouteData",
    "decode_data_version",
    "decode_queues",
    "decode_register_body",
    "decode_route",
    "encode_json",
    "encode_register_body",
    "register_body_crc",
]

MASTER_ID: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

_LENGTH: Final = struct.Struct(">i")
# As many topics as a broker of ours may have, with names as long as they may be.
_BODY_SIZE_MAX: Final = 12 * 1024 * 1024
_OBJECTS_PER_TOPIC: Final = 2  # itself and its attributes; a registration has four more
_INFLATED_SIZE_MAX: Final = 16 * 1024 * 1024  # as much as fits a frame that is not compressed
TOPICS_MAX: Final = 100_000
"""Topics that one registration may carry."""

QUEUES_MAX: Final = 65_535
"""Queues of one topic in one broker group; clients make an object of each."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_QueueCount = Annotated[int, msgspec.Meta(ge=0, le=QUEUES_MAX)]


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The version of a registration's content. `state_version` is the Raft term of its sender."""

    state_version: int = 0
    timestamp_ms: int = field(name="timestamp", default=0)
    counter: int = 0


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker's configuration of a topic. `perm` joins PERM_* bits."""

    topic_name: str = ""  # a table of topics may give it only as the key
    read_queue_nums: _QueueCount = 16
    write_queue_nums: _QueueCount = 16
    perm: _Count = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues of a topic at one broker group."""

    broker_name: str
    read_queue_nums: _QueueCount
    write_queue_nums: _QueueCount
    perm: _Count
    topic_sys_flag: int = 0

    @classmethod
    def of(cls, broker_name: str, topic: TopicConfig) -> QueueData:
        return cls(
            broker_name=broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )


class BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker group; id 0 is its leader, where it has one."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The groups and queues of a topic."""

    broker_datas: list[BrokerData]
    queue_datas: list[QueueData]
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All broker groups, and the groups of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class BrokerMemberGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One group's members by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class TopicList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names of topics."""

    topic_list: list[str]
    broker_addr: str | None = None


class _Queues(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    queue_datas: list[QueueData] | None = None


class RegisterBrokerBody(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's registration of its topics at a name server."""

    data_version: DataVersion
    topics: list[TopicConfig]
    filter_servers: list[str] = field(default_factory=list)


class _ConfigWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class _JsonRegisterBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic_config_serialize_wrapper: _ConfigWrapper
    filter_server_list: list[str] = field(default_factory=list)


def encode_json(value: msgspec.Struct) -> bytes:
    """Encode the body of any value of this module except RegisterBrokerBody."""
    return fastjson.encode(value)


def decode_route(body: bytes) -> TopicRouteData:
    """Decode the answer to GET_ROUTEINFO_BY_TOPIC. Raises BodyError."""
    return fastjson.decode(body, TopicRouteData)


def decode_queues(body: bytes) -> list[QueueData]:
    """Decode the queues of a TopicRouteData that may have no other field. Raises BodyError."""
    return fastjson.decode_request(body, _Queues).queue_datas or []


def decode_data_version(body: bytes) -> DataVersion:
    """Decode the body of QUERY_DATA_VERSION. Raises BodyError."""
    return fastjson.decode_request(body, DataVersion)


def register_body_crc(body: bytes) -> int:
    """Return the `bodyCrc32` of a registration."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def encode_register_body(registration: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Encode the body of REGISTER_BROKER, in the form of its header field `compressed`."""
    if compressed:
        return _encode_compressed(registration)
    return fastjson.encode(
        _JsonRegisterBody(
            topic_config_serialize_wrapper=_ConfigWrapper(
                topic_config_table={topic.topic_name: topic for topic in registration.topics},
                data_version=registration.data_version,
            ),
            filter_server_list=registration.filter_servers,
        )
    )


def decode_register_body(body: bytes, *, compressed: bool = False) -> RegisterBrokerBody:
    """Decode what `encode_register_body` encodes.

    An empty body means: no topics, version zero. Raises BodyError, also above TOPICS_MAX topics,
    12 MiB, or 16 MiB decompressed.
    """
    if not body:
        return RegisterBrokerBody(data_version=DataVersion(), topics=[])
    if compressed:
        return _decode_compressed(body)
    _check_topic_count(body.count(b"{") // _OBJECTS_PER_TOPIC)  # before they take memory
    decoded = fastjson.decode_request(body, _JsonRegisterBody, body_size_max=_BODY_SIZE_MAX)
    wrapper = decoded.topic_config_serialize_wrapper
    _check_topic_count(len(wrapper.topic_config_table))
    return RegisterBrokerBody(
        data_version=wrapper.data_version,
        topics=[
            topic if topic.topic_name == name else msgspec.structs.replace(topic, topic_name=name)
            for name, topic in wrapper.topic_config_table.items()
        ],
        filter_servers=decoded.filter_server_list,
    )


def _check_topic_count(count: int) -> None:
    if not 0 <= count <= TOPICS_MAX:
        raise BodyError(f"registration of {count} topics, not within 0..{TOPICS_MAX}")


def _encode_compressed(registration: RegisterBrokerBody) -> bytes:
    items = [fastjson.encode(registration.data_version)]
    for topic in registration.topics:
        attributes = fastjson.encode(topic.attributes).decode()
        items.append(
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
            f" {topic.topic_filter_type} {attributes}".encode()
        )
    items.append(fastjson.encode(registration.filter_servers))
    framed = [_LENGTH.pack(len(item)) + item for item in items]
    framed.insert(1, _LENGTH.pack(len(registration.topics)))
    framed.append(_LENGTH.pack(0))  # queue mappings
    return zlib.compress(b"".join(framed))


def _decode_compressed(body: bytes) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, _INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise BodyError(f"compressed registration is damaged: {error}") from error
    if not inflater.eof:
        raise BodyError(
            f"compressed registration is cut short or inflates beyond {_INFLATED_SIZE_MAX} bytes"
        )
    reader = _ItemReader(inflated)
    data_version = fastjson.decode(reader.item("data version"), DataVersion)
    count = reader.number("number of topics")
    _check_topic_count(count)
    topics = [_parse_topic(reader.item("topic")) for _ in range(count)]
    filter_servers = fastjson.decode(reader.item("filter server list"), list[str])
    return RegisterBrokerBody(
        data_version=data_version, topics=topics, filter_servers=filter_servers
    )


def _parse_topic(item: bytes) -> TopicConfig:
    try:
        words = item.decode().split(" ", 5)
        name, read_queues, write_queues, perm, filter_type = words[:5]
        fields = {
            "topicName": name,
            "readQueueNums": int(read_queues),
            "writeQueueNums": int(write_queues),
            "perm": int(perm),
            "topicFilterType": filter_type,
            "attributes": fastjson.decode(words[5].encode(), dict[str, str]) if words[5:] else {},
        }
        return msgspec.convert(fields, TopicConfig)  # checks the ranges
    except (ValueError, msgspec.ValidationError) as error:
        raise BodyError(f"topic {item!r:.100} of a registration: {error}") from error


class _ItemReader:
    """Reads length-prefixed items, bounds checked."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, what: str) -> int:
        if len(self._data) - self._at < 4:
            raise BodyError(f"registration ends before its {what}")
        (value,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def item(self, what: str) -> bytes:
        size = self.number(f"{what}'s length")
        if not 0 <= size <= len(self._data) - self._at:
            raise BodyError(f"registration has a {what} of length {size}")
        start = self._at
        self._at += size
        return self._data[start : self._at]
