"""A name server over real sockets, and as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator

import pytest

from campaigns.rig.waiting import until
from namesrv.config import NameServerConfig
from namesrv.registration import RouteLimits
from namesrv.server import NameServer, NameServerStartError, run
from namesrv.settings import Settings
from remoting.connections.rpc import RemotingClient
from remoting.errors import RecordError, RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand, SerializeType
from remoting.protocol.headers import (
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    UnregisterBrokerRequestHeader,
)
from remoting.protocol.route import (
    DataVersion,
    decode_route,
    encode_json,
)
from tests.namesrv.requests import register


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    config = NameServerConfig(
        listen="127.0.0.1:0",
        settings=Settings(scan_not_active_broker_interval=20),
        limits=RouteLimits(groups_max=2),
        kv_entries_max=2,
    )
    server = NameServer(config)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def broker() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()


async def ask(
    client: RemotingClient, server: NameServer, code: int, body: bytes = b"", **fields: str
) -> RemotingCommand:
    command = RemotingCommand(code=code, ext_fields=fields, body=body)
    return await client.request(server.address, command, 3000)


async def route_codes(client: RemotingClient, server: NameServer) -> int:
    return (await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")).code


@pytest.mark.parametrize("compressed", [False, True])
async def test_register_and_route(
    server: NameServer, broker: RemotingClient, client: RemotingClient, compressed: bool
) -> None:
    answer = await broker.request(server.address, register(compressed=compressed), 3000)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields == {}
    assert json.loads(answer.body) == {"table": {}}
    follower = register(2, "127.0.0.1:10921", compressed=compressed)
    answer = await broker.request(server.address, follower, 3000)
    assert answer.ext_fields == {
        "masterAddr": "127.0.0.1:10911",
        "haServerAddr": "127.0.0.1:10912",
    }
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.version == 479
    route = decode_route(answer.body)
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 2: "127.0.0.1:10921"}
    assert route.queue_datas[0].write_queue_nums == 4
    assert b'"brokerAddrs":{"0":"127.0.0.1:10911"' in answer.body  # standard JSON
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="X")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == "No topic route info in name server for the topic: X"


async def test_lists_and_groups(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    await broker.request(server.address, register(topics=("T", "U")), 3000)
    answer = await ask(client, server, RequestCode.GET_BROKER_CLUSTER_INFO)
    info = json.loads(answer.body)
    assert info["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    assert info["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    answer = await ask(client, server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert json.loads(answer.body) == {"topicList": ["T", "U"], "brokerAddr": None}
    answer = await ask(client, server, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="Other")
    assert json.loads(answer.body)["topicList"] == []
    answer = await ask(
        client,
        server,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        clusterName="DefaultCluster",
        brokerName="broker-a",
    )
    assert json.loads(answer.body)["brokerMemberGroup"]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    answer = await ask(client, server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.ext_fields == {"wipeTopicCount": "2"}
    answer = await ask(client, server, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert answer.ext_fields == {"addTopicCount": "2"}
    await ask(client, server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T")
    assert await route_codes(client, server) == ResponseCode.TOPIC_NOT_EXIST


async def test_a_lost_connection_removes_its_brokers_at_once(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    await broker.request(server.address, register(), 3000)
    assert await route_codes(client, server) == ResponseCode.SUCCESS
    connection = broker.connection(server.address)
    assert connection is not None
    connection.close()

    async def is_gone() -> bool:
        return await route_codes(client, server) == ResponseCode.TOPIC_NOT_EXIST

    await until(is_gone)


async def test_silence_removes_a_broker_and_heartbeats_keep_it(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    await broker.request(server.address, register(changes={"heartbeatTimeoutMillis": "300"}), 3000)
    header = BrokerHeartbeatRequestHeader(
        cluster_name="DefaultCluster", broker_addr="127.0.0.1:10911", broker_name="broker-a"
    )
    began = time.monotonic()
    while time.monotonic() - began < 0.6:
        answer = await ask(broker, server, RequestCode.BROKER_HEARTBEAT, **header.to_ext_fields())
        assert answer.code == ResponseCode.SUCCESS

    async def is_gone() -> bool:
        return await route_codes(client, server) == ResponseCode.TOPIC_NOT_EXIST

    await until(is_gone)
    answer = await ask(broker, server, RequestCode.BROKER_HEARTBEAT, **header.to_ext_fields())
    assert answer.code == ResponseCode.BROKER_NOT_EXIST
    assert answer.remark == "broker broker-a at 127.0.0.1:10911 is not registered"


async def test_query_data_version_and_unregister(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    header = QueryDataVersionRequestHeader(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
    ).to_ext_fields()
    version = DataVersion(state_version=1, timestamp_ms=5, counter=1)
    code = RequestCode.QUERY_DATA_VERSION
    answer = await ask(broker, server, code, encode_json(version), **header)
    assert answer.ext_fields == {"changed": "true"}
    assert answer.body == b""
    await broker.request(server.address, register(), 3000)
    answer = await ask(broker, server, code, encode_json(version), **header)
    assert answer.ext_fields == {"changed": "false"}
    assert json.loads(answer.body) == {"stateVersion": 1, "timestamp": 5, "counter": 1}
    answer = await ask(broker, server, code, encode_json(DataVersion(counter=2)), **header)
    assert answer.ext_fields == {"changed": "true"}
    fields = UnregisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
    ).to_ext_fields()
    answer = await ask(broker, server, RequestCode.UNREGISTER_BROKER, **fields)
    assert answer.code == ResponseCode.SUCCESS
    assert await route_codes(client, server) == ResponseCode.TOPIC_NOT_EXIST


async def test_a_stale_leader_is_told_so(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    await broker.request(server.address, register(addr="127.0.0.1:2", term=5), 3000)
    answer = await client.request(server.address, register(addr="127.0.0.1:1", term=4), 3000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "held by 127.0.0.1:2 in term 5" in answer.remark


async def test_kv_config_reaches_brokers_and_routes(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    namespace = "ORDER_TOPIC_CONFIG"
    answer = await ask(client, server, RequestCode.GET_KV_CONFIG, namespace=namespace, key="T")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "No config item, Namespace: ORDER_TOPIC_CONFIG Key: T"
    answer = await ask(client, server, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace=namespace)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    await ask(
        client, server, RequestCode.PUT_KV_CONFIG, namespace=namespace, key="T", value="broker-a:4"
    )
    answer = await ask(client, server, RequestCode.GET_KV_CONFIG, namespace=namespace, key="T")
    assert answer.ext_fields == {"value": "broker-a:4"}
    answer = await broker.request(server.address, register(), 3000)
    assert json.loads(answer.body) == {"table": {"T": "broker-a:4"}}
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert decode_route(answer.body).order_topic_conf == "broker-a:4"
    answer = await ask(client, server, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace=namespace)
    assert json.loads(answer.body) == {"table": {"T": "broker-a:4"}}
    await ask(client, server, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    answer = await ask(client, server, RequestCode.PUT_KV_CONFIG, namespace="n", key="l", value="v")
    assert (answer.code, answer.remark) == (1, "2 entries are kept already")
    await ask(client, server, RequestCode.DELETE_KV_CONFIG, namespace=namespace, key="T")
    answer = await ask(client, server, RequestCode.GET_KV_CONFIG, namespace=namespace, key="T")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bodyCrc32": "5"}, "crc32 not match"),
        ({"brokerId": "x"}, "RegisterBrokerRequestHeader: field brokerId is 'x'"),
        ({"compressed": "true"}, "compressed registration is damaged"),
        ({"brokerName": ""}, "broker_name has 0 characters"),
        ({"brokerId": "-1"}, "broker id -1 is negative"),
    ],
)
async def test_a_bad_registration_is_answered_with_what_was_wrong(
    server: NameServer, broker: RemotingClient, changes: dict[str, str], text: str
) -> None:
    answer = await broker.request(server.address, register(changes=changes), 3000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert text in answer.remark


async def test_other_bad_requests(server: NameServer, client: RemotingClient) -> None:
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "GetRouteInfoRequestHeader: field topic is missing"
    command = register()
    command.body = b"{"
    command.ext_fields["bodyCrc32"] = "0"
    answer = await client.request(server.address, command, 3000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "body has 'the end' at character 1 where a field name should be"
    answer = await ask(client, server, 310)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "request code 310 is not supported by a name server"
    for number in range(2):
        await client.request(server.address, register(name=f"g{number}"), 3000)
    answer = await client.request(server.address, register(name="g2"), 3000)
    assert (answer.code, answer.remark) == (1, "2 groups are known already")


async def test_oneway_requests_act_and_are_not_answered(
    server: NameServer, broker: RemotingClient, client: RemotingClient
) -> None:
    await broker.oneway(server.address, register())
    await broker.oneway(server.address, RemotingCommand(code=310))
    answer = await ask(broker, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert answer.code == ResponseCode.SUCCESS


async def test_the_binary_header_is_answered_in_kind(
    server: NameServer, client: RemotingClient
) -> None:
    command = RemotingCommand(
        code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        ext_fields={"topic": "X"},
        serialize_type=SerializeType.ROCKETMQ,
    )
    answer = await client.request(server.address, command, 3000)
    assert answer.serialize_type is SerializeType.ROCKETMQ
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NameServerStartError) as caught:
            await run(NameServerConfig(listen=address))
    assert str(caught.value) == f"can't listen on {address} for remoting: Address already in use"


async def test_a_host_without_an_address_is_named() -> None:
    listen = "[::1%nowhere]:1"  # which is asked of no resolver
    with pytest.raises(NameServerStartError) as caught:
        await NameServer(NameServerConfig(listen=listen)).start()
    assert str(caught.value) == f"can't listen on {listen} for remoting: Name or service not known"


def test_the_configuration_is_checked() -> None:
    with pytest.raises(RecordError, match="is not ip:port"):
        NameServerConfig(listen="9876")
    with pytest.raises(ValueError, match="scanNotActiveBrokerInterval"):
        Settings(scan_not_active_broker_interval=0)


PROGRAM = """
import asyncio
from namesrv.config import NameServerConfig
from namesrv.server import run
asyncio.run(run(NameServerConfig(listen="127.0.0.1:0")))
"""


async def test_a_process_says_when_it_serves_and_stops_at_sigterm(client: RemotingClient) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            line = (await process.stdout.readline()).decode()
        prefix = "ledgermq namesrv listening on "
        assert line.startswith(prefix)
        command = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await client.request(line.removeprefix(prefix).strip(), command, 3000)
        assert answer.code == ResponseCode.SUCCESS
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_brokers_and_operators_find_a_connection_where_clients_have_all() -> None:
    server = NameServer(
        NameServerConfig(listen="127.0.0.1:0", connections_max=2, connections_reserved=2)
    )
    await server.start()
    crowd = [RemotingClient() for _ in range(2)]
    broker, operator, late = RemotingClient(), RemotingClient(), RemotingClient()
    try:
        for client in crowd:
            assert await route_codes(client, server) == ResponseCode.TOPIC_NOT_EXIST
        answer = await broker.request(server.address, register(), 3_000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        listed = await ask(operator, server, RequestCode.GET_BROKER_CLUSTER_INFO)
        assert listed.code == ResponseCode.SUCCESS
        with pytest.raises(RemotingError):
            await route_codes(late, server)
        for client in crowd:
            assert await route_codes(client, server) == ResponseCode.SUCCESS
    finally:
        for client in (*crowd, broker, operator, late):
            await client.close()
        await server.stop()
