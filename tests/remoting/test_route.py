"""Bodies of registrations and routes, in all the forms that peers write."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import BodyError
from remoting.protocol.route import (
    QUEUES_MAX,
    TOPICS_MAX,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicList,
    TopicRouteData,
    decode_data_version,
    decode_register_body,
    decode_route,
    encode_json,
    encode_register_body,
    register_body_crc,
)

NAMES = st.text("abcXYZ019_%-|", min_size=1, max_size=20)
COUNTS = st.integers(0, QUEUES_MAX)
TOPICS = st.builds(
    TopicConfig,
    topic_name=NAMES,
    read_queue_nums=COUNTS,
    write_queue_nums=COUNTS,
    perm=st.integers(0, 7),
    topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    attributes=st.dictionaries(NAMES, st.text(max_size=10), max_size=2),
)
BODIES = st.builds(
    RegisterBrokerBody,
    data_version=st.builds(DataVersion, state_version=COUNTS, timestamp_ms=COUNTS, counter=COUNTS),
    topics=st.lists(TOPICS, max_size=4, unique_by=lambda topic: topic.topic_name),
    filter_servers=st.lists(NAMES, max_size=2),
)


@pytest.mark.parametrize("compressed", [False, True])
@given(body=BODIES)
def test_registration_round_trip(compressed: bool, body: RegisterBrokerBody) -> None:
    encoded = encode_register_body(body, compressed=compressed)
    assert decode_register_body(encoded, compressed=compressed) == body


def test_golden_json_registration() -> None:
    body = RegisterBrokerBody(
        data_version=DataVersion(state_version=3, timestamp_ms=1_700_000_000_000, counter=2),
        topics=[TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8)],
    )
    assert json.loads(encode_register_body(body)) == {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {
                "T": {
                    "topicName": "T",
                    "readQueueNums": 4,
                    "writeQueueNums": 8,
                    "perm": 6,
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": 0,
                    "order": False,
                    "attributes": {},
                }
            },
            "dataVersion": {"stateVersion": 3, "timestamp": 1_700_000_000_000, "counter": 2},
        },
        "filterServerList": [],
    }


def item(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed_body(*topics: bytes, count: int | None = None, tail: bytes = b"") -> bytes:
    version = b'{"counter":2,"stateVersion":3,"timestamp":4}'
    number = struct.pack(">i", len(topics) if count is None else count)
    return item(version) + number + b"".join(item(topic) for topic in topics) + tail


def test_compressed_registrations_of_both_generations() -> None:
    mapping = struct.pack(">i", 1) + item(b'{"bname":"a","currIdMap":{0:0},"topic":"S"}')
    old = compressed_body(b"T 4 8 6 SINGLE_TAG", tail=item(b"[]"))
    new = compressed_body(
        b'T 4 8 6 SINGLE_TAG {"message.type":"a b"}', tail=item(b'["f"]') + mapping
    )
    version = DataVersion(state_version=3, timestamp_ms=4, counter=2)
    topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8)
    assert decode_register_body(zlib.compress(old), compressed=True) == RegisterBrokerBody(
        data_version=version, topics=[topic]
    )
    decoded = decode_register_body(zlib.compress(new), compressed=True)
    assert decoded.topics[0].attributes == {"message.type": "a b"}
    assert decoded.filter_servers == ["f"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"nonsense", "compressed registration is damaged"),
        (zlib.compress(bytes(100))[:-3], "cut short"),
        (zlib.compress(b""), "ends before its data version's length"),
        (zlib.compress(item(b"[")), "where a JSON value"),
        (zlib.compress(struct.pack(">i", -1)), "data version of length -1"),
        (zlib.compress(struct.pack(">i", 5)), "data version of length 5"),
        (zlib.compress(compressed_body(count=-1)), "registration of -1 topics"),
        (zlib.compress(compressed_body(count=2**31 - 1)), "registration of 2147483647 topics"),
        (zlib.compress(compressed_body(b"T 4 8")), r"topic b'T 4 8' of a registration"),
        (zlib.compress(compressed_body(b"T 4 x 6 SINGLE_TAG")), "topic b'T 4 x 6"),
        (zlib.compress(compressed_body(b"T 1 2 3 S", count=2)), "ends before its topic's length"),
        (zlib.compress(compressed_body(b"\xff 1 2 3 S")), r"of a registration"),
        (zlib.compress(compressed_body(b"T -1 2 3 S")), r"of a registration"),
    ],
)
def test_broken_compressed_registrations_are_named(body: bytes, message: str) -> None:
    with pytest.raises(BodyError, match=message):
        decode_register_body(body, compressed=True)


def test_a_compression_bomb_is_refused() -> None:
    bomb = zlib.compress(bytes(70 * 1024 * 1024))
    assert len(bomb) < 100_000
    with pytest.raises(BodyError, match="inflates beyond"):
        decode_register_body(bomb, compressed=True)


@given(data=st.binary(max_size=60), compressed=st.booleans())
def test_any_bytes_are_a_registration_or_refused(data: bytes, compressed: bool) -> None:
    with contextlib.suppress(BodyError):
        decode_register_body(zlib.compress(data) if compressed else data, compressed=compressed)


def test_a_registration_without_a_body_knows_no_topics() -> None:
    empty = RegisterBrokerBody(data_version=DataVersion(), topics=[])
    assert decode_register_body(b"") == empty
    assert decode_register_body(b"", compressed=True) == empty


def test_the_tables_key_names_a_topic() -> None:
    body = (
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":1,'
        b'"writeQueueNums":2,"perm":6,"topicFilterType":"SINGLE_TAG"}},"dataVersion":null}}'
    )
    (topic,) = decode_register_body(body).topics
    assert topic == TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=2)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":-1}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":4294967296}}}}',
    ],
)
def test_broken_json_registrations_are_refused(body: bytes) -> None:
    with pytest.raises(BodyError, match="body is no"):
        decode_register_body(body)


ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(
            cluster="DefaultCluster",
            broker_name="broker-a",
            broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:10921"},
        )
    ],
    queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6)],
)


def test_golden_route() -> None:
    assert json.loads(encode_json(ROUTE)) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "orderTopicConf": None,
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }
    assert decode_route(encode_json(ROUTE)) == ROUTE


def test_a_route_as_an_old_java_name_server_writes_it() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSynFlag":0,'
        b'"writeQueueNums":4}]}'
    )
    assert decode_route(body) == ROUTE


def test_a_topic_of_two_thousand_million_queues_is_refused() -> None:
    """Whoever reads a route makes an object of each queue."""
    row = f'{{"brokerName":"a","perm":6,"readQueueNums":{2**31 - 1},"writeQueueNums":4}}'
    with pytest.raises(BodyError, match="65535"):
        decode_route(f'{{"brokerDatas":[],"queueDatas":[{row}]}}'.encode())
    table = '{"topicConfigTable":{"T":{"readQueueNums":70000}},"dataVersion":{}}'
    with pytest.raises(BodyError, match="65535"):
        decode_register_body(f'{{"topicConfigSerializeWrapper":{table}}}'.encode())


def test_other_bodies() -> None:
    assert json.loads(encode_json(TopicList(topic_list=["a"]))) == {
        "topicList": ["a"],
        "brokerAddr": None,
    }
    info = ClusterInfo(
        broker_addr_table={"broker-a": ROUTE.broker_datas[0]},
        cluster_addr_table={"DefaultCluster": ["broker-a"]},
    )
    assert json.loads(encode_json(info))["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    version = DataVersion(state_version=1, timestamp_ms=2, counter=3)
    assert decode_data_version(encode_json(version)) == version
    with pytest.raises(BodyError):
        decode_data_version(b"x")


def test_the_crc_of_a_body_has_31_bits() -> None:
    assert register_body_crc(b"hello") == 0x3610A686
    assert register_body_crc(b"\x00") == 0x5202EF8D


def test_a_registration_of_too_many_topics_is_refused_before_they_are_made():
    table = ",".join(f'"{number}":{{}}' for number in range(2 * TOPICS_MAX + 2))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
    with pytest.raises(BodyError, match="registration of 10000"):
        decode_register_body(body)
