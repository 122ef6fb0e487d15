"""What administrators ask of a name server: settings, lists, topics by hand, what is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from campaigns.rig.certificates import Authority
from campaigns.rig.waiting import until
from namesrv.config import NameServerConfig, NameServerConfigError, load_config
from namesrv.kv_config import KvConfig
from namesrv.kv_file import KvFileError, NotStoredError, StoredKv
from namesrv.registration import RouteLimits
from namesrv.server import NameServer, NameServerStartError
from namesrv.settings import Settings, SettingsError
from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.connections.security_config import SecurityConfig
from remoting.connections.server import RemotingServer
from remoting.connections.tls import TlsMode, client_context
from remoting.errors import ConnectError
from remoting.protocol.command import RemotingCommand
from remoting.protocol.java_properties import parse_java_properties
from tests.namesrv.requests import register


@asynccontextmanager
async def name_server(
    config: NameServerConfig | None = None,
) -> AsyncIterator[tuple[NameServer, RemotingClient]]:
    server = NameServer(config or NameServerConfig(listen="127.0.0.1:0"))
    await server.start()
    client = RemotingClient()
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


async def ask(
    server: NameServer, client: RemotingClient, code: int, body: bytes = b"", **fields: str
) -> RemotingCommand:
    command = RemotingCommand(code=code, ext_fields=fields, body=body)
    return await client.request(server.address, command, 3_000)


async def test_settings_are_told_changed_and_followed() -> None:
    async with name_server() as (server, client):
        told = parse_java_properties((await ask(server, client, 319)).body.decode())
        assert told["enableTopicList"] == "true"
        assert told["listenPort"] == server.address.rpartition(":")[2]
        for body, code, remark in (
            (b"enableTopicList=maybe", 1, "'maybe' is not true or false"),
            (b"enableTopicList=false\nenabelTopicList=true", 1, "enabelTopicList"),
            (b"kvConfigPath=/etc/passwd", 16, "black list"),
            (b"scanNotActiveBrokerInterval=0", 1, "at least 1"),
            (b"scanNotActiveBrokerInterval=3600001", 1, "at most 3600000"),
            (b"a=\\u00", 1, "line 1"),
            (b"\xff", 1, "not UTF-8"),
        ):
            answer = await ask(server, client, 318, body)
            assert answer.code == code
            assert remark in (answer.remark or "")
        assert (await ask(server, client, 224, cluster="C")).code == 0  # none was taken in part
        changes = b"enableTopicList=false\nenableAllTopicList=false\nsupportActingMaster=true\n"
        assert (await ask(server, client, 318, changes)).code == 0
        told = parse_java_properties((await ask(server, client, 319)).body.decode())
        assert (told["enableTopicList"], told["supportActingMaster"]) == ("false", "true")
        for code in (224, 311, 312, 313):
            answer = await ask(server, client, code, cluster="C")
            assert (answer.code, answer.remark) == (1, "disable")
        assert (await ask(server, client, 206)).remark == "disable"


async def test_a_changed_scan_interval_counts_at_once() -> None:
    config = NameServerConfig(
        listen="127.0.0.1:0",
        settings=Settings(scan_not_active_broker_interval=3_600_000),
        limits=RouteLimits(broker_timeout_ms=1),
    )
    async with name_server(config) as (server, client):
        await client.request(server.address, register(), 3_000)
        assert (await ask(server, client, 105, topic="T")).code == 0
        assert (await ask(server, client, 318, b"scanNotActiveBrokerInterval=20")).code == 0

        async def is_gone() -> bool:
            return (await ask(server, client, 105, topic="T")).code == 17

        await until(is_gone)
        # And is not put off by changes of other settings, however often they come.
        await client.request(server.address, register(), 3_000)
        assert (await ask(server, client, 318, b"scanNotActiveBrokerInterval=500")).code == 0

        async def is_gone_meanwhile() -> bool:
            await ask(server, client, 318, b"enableTopicList=true")
            return await is_gone()

        await until(is_gone_meanwhile)


async def test_lists_and_topics_by_hand() -> None:
    async with name_server() as (server, client):
        await client.request(server.address, register(topics=("T",)), 3_000)
        answer = json.loads((await ask(server, client, 304)).body)
        assert answer == {
            "topicList": ["DefaultCluster", "broker-a"],
            "brokerAddr": "127.0.0.1:10911",
        }
        queues = {
            "brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
            "topicSysFlag": 2,
        }  # fmt: skip
        body = json.dumps({"queueDatas": [queues]}).encode()
        assert (await ask(server, client, 217, body, topic="made")).code == 0
        assert (await ask(server, client, 105, topic="made")).code == 0
        for code, names in ((311, []), (312, ["made"]), (313, ["made"])):
            assert json.loads((await ask(server, client, code)).body)["topicList"] == names
        unknown = json.dumps({"queueDatas": [{**queues, "brokerName": "x"}]}).encode()
        answer = await ask(server, client, 217, unknown, topic="made")
        assert (answer.code, answer.remark) == (1, "group x is not known")
        assert (await ask(server, client, 217, b"{", topic="made")).code == 1


async def test_routes_wait_for_brokers_where_settings_say() -> None:
    async with name_server() as (server, client):
        assert (await client.request(server.address, register(), 3_000)).code == 0
        changes = b"needWaitForService=true\nwaitSecondsForService=3600"
        assert (await ask(server, client, 318, changes)).code == 0
        told = parse_java_properties((await ask(server, client, 319)).body.decode())
        assert told["waitSecondsForService"] == "3600"
        answer = await ask(server, client, 105, topic="T")
        assert (answer.code, answer.remark) == (1, "name server not ready")
        assert (await ask(server, client, 106)).code == 0  # routes alone wait
        assert (await ask(server, client, 318, b"waitSecondsForService=0")).code == 0
        assert (await ask(server, client, 105, topic="T")).code == 0


async def test_the_order_of_queues_goes_where_settings_say() -> None:
    async with name_server() as (server, client):
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
        await ask(server, client, 100, **order)
        for is_on in (True, False):
            answer = await client.request(server.address, register(), 3_000)
            assert json.loads(answer.body)["table"] == ({"T": "broker-a:4"} if is_on else {})
            answer = await ask(server, client, 105, topic="T")
            assert json.loads(answer.body).get("orderTopicConf") == (
                "broker-a:4" if is_on else None
            )
            changes = b"orderMessageEnable=false\nreturnOrderTopicConfigToBroker=false"
            assert (await ask(server, client, 318, changes)).code == 0


async def test_members_are_told_of_another_lowest_id() -> None:
    heard: list[RemotingCommand] = []
    arrived = asyncio.Event()

    def on_request(_: Connection, command: RemotingCommand) -> None:
        heard.append(command)
        arrived.set()

    member = RemotingServer("127.0.0.1", 0, on_request)
    await member.start()
    acting = {"enableActingMaster": "true"}
    async with name_server() as (server, client):
        assert (await ask(server, client, 318, b"notifyMinBrokerIdChanged=true")).code == 0
        other = RemotingClient()
        await other.request(server.address, register(1, "127.0.0.1:1", changes=acting), 3_000)
        await client.request(server.address, register(2, member.address, changes=acting), 3_000)
        await other.close()
        async with asyncio.timeout(5):
            await arrived.wait()
        assert heard[0].code == 905
        assert heard[0].is_oneway
        assert heard[0].ext_fields == {
            "minBrokerId": "2",
            "brokerName": "broker-a",
            "minBrokerAddr": member.address,
            "offlineBrokerAddr": "127.0.0.1:1",
        }
    await member.stop()


async def test_key_value_configuration_survives_a_restart(tmp_path: Path) -> None:
    config = NameServerConfig(listen="127.0.0.1:0", kv_config_path=tmp_path / "d" / "kv.json")
    async with name_server(config) as (server, client):
        for key in ("k", "gone"):
            answer = await ask(server, client, 100, namespace="n", key=key, value="v\u00e9")
            assert answer.code == 0
        assert (await ask(server, client, 102, namespace="n", key="gone")).code == 0
    async with name_server(config) as (server, client):
        answer = await ask(server, client, 219, namespace="n")
        assert json.loads(answer.body) == {"table": {"k": "v\u00e9"}}
    content = json.loads((tmp_path / "d" / "kv.json").read_bytes())
    assert content == {"configTable": {"n": {"k": "v\u00e9"}}}


def test_what_can_not_be_kept_is_not_in_force(tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    kv = StoredKv(KvConfig(), file)
    kv.put("n", "k", "old")
    (tmp_path / "kv.json.new").mkdir()  # nothing can be written there
    with pytest.raises(NotStoredError, match=r"kv\.json"):
        kv.put("n", "k", "new")
    with pytest.raises(NotStoredError):
        kv.put("n", "other", "new")
    with pytest.raises(NotStoredError):
        kv.delete("n", "k")
    assert kv.namespace("n") == {"k": "old"}
    assert StoredKv(KvConfig(), file).namespace("n") == {"k": "old"}


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b'{"configTable":{"n":{"k":1}}}'])
def test_a_file_that_can_not_be_read_ends_the_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "kv.json"
    file.write_bytes(content)
    with pytest.raises(KvFileError, match=r"kv\.json"):
        StoredKv(KvConfig(), file)
    assert file.read_bytes() == content


async def test_a_name_server_that_takes_tls_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("server")
    config = NameServerConfig(
        listen="127.0.0.1:0",
        security=SecurityConfig(
            tls_mode=TlsMode.ENFORCING,
            tls_cert_file=certificate.cert,
            tls_key_file=certificate.key,
        ),
    )
    async with name_server(config) as (server, plain):
        assert (await ask(server, plain, 206)).code == 16
        trusting = RemotingClient(tls=client_context(ca_file=authority.own.cert))
        assert (await ask(server, trusting, 206)).code == 0
        await trusting.close()
    broken = SecurityConfig(
        tls_mode=TlsMode.PERMISSIVE, tls_cert_file=tmp_path / "no", tls_key_file=tmp_path / "no"
    )
    with pytest.raises(NameServerStartError, match="tls: certificate"):
        NameServer(NameServerConfig(security=broken))
    distrusting = RemotingClient(tls=client_context(ca_file=authority.own.cert))
    with pytest.raises(ConnectError):
        await distrusting.request("127.0.0.1:1", RemotingCommand(code=206), 1_000)
    await distrusting.close()


def test_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text(
        'listen = "127.0.0.1:9999"\nkv_config_path = "kv.json"\nsupportActingMaster = true\n'
        "scanNotActiveBrokerInterval = 100\nproxy_protocol_from = ['10.0.0.0/8']\n"
        "connections_max = 9\nconnections_reserved = 0\nkv_entries_max = 3\n"
    )
    config = load_config(file)
    assert config.port == 9999
    assert (config.connections_max, config.connections_reserved, config.kv_entries_max) == (9, 0, 3)
    assert config.kv_config_path == Path("kv.json")
    assert config.settings == Settings(
        support_acting_master=True, scan_not_active_broker_interval=100
    )
    assert config.security.proxy_protocol_from == ("10.0.0.0/8",)
    for text, told in (
        ("listen = 7", "listen must be text, not 7"),
        ("kv_config_path = 7", "kv_config_path must be a path, not 7"),
        ('listen = "nowhere"', "listen: "),
        ('listen = "a..b:9876"', "listen: "),
        ("supportActingMaster = 7", "supportActingMaster: '7'"),
        ("suportActingMaster = true", "did you mean 'supportActingMaster'"),
        ('tls_mode = "enforcing"', "tls_mode: TLS needs"),
        ("connections_max = 0", "connections_max, "),
        ("connections_max = '9'", "connections_max must be"),
        ("=", "not TOML"),
    ):
        file.write_text(text)
        with pytest.raises(NameServerConfigError, match=told):
            load_config(file)


def test_only_what_is_known_is_changed() -> None:
    with pytest.raises(SettingsError, match="listen"):
        Settings().updated({"listen": "127.0.0.1:1"})
    for text in ("-1", "1.5", "", "١", "9" * 13):
        with pytest.raises(SettingsError):
            Settings().updated({"scanNotActiveBrokerInterval": text})
    assert Settings().updated(Settings().shown()) == Settings()
