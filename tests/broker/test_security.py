"""A broker behind accounts and TLS: who is refused hears why, is in the log, and stores nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.config.config import ConfigError, load_config
from broker.process.server import Broker
from campaigns.rig.certificates import Authority
from namesrv.config import NameServerConfig
from namesrv.server import NameServer
from remoting.connections.rpc import RemotingClient
from remoting.connections.security_config import SecurityConfig
from remoting.connections.tls import TlsMode, client_context
from remoting.errors import ConnectError, ConnectionLostError
from remoting.protocol.acl_signature import Signer
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import send_fields
from tests.broker.secured import ask, broker_with, configured, stored

ACCOUNTS = """
accounts:
  - {accessKey: producer1, secretKey: secret-of-producer, topicPerms: [orders=PUB]}
  - {accessKey: admin001, secretKey: secret-of-admin, admin: true}
"""
PRODUCER = Signer("producer1", "secret-of-producer")
ADMIN = Signer("admin001", "secret-of-admin")


async def test_only_signed_requests_within_their_permissions_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    attempts = [
        (None, "orders", "No accessKey is configured"),
        (Signer("nobody01", "secret"), "orders", "No acl config for nobody01"),
        (Signer("producer1", "wrong-secret"), "orders", "Check signature failed"),
        (PRODUCER, "payments", "No default permission for topic:payments"),
    ]
    async with broker_with(tmp_path, "acl_enable = true", f'acl_file = "{accounts}"') as broker:
        for signer, topic, told in attempts:
            client = RemotingClient(sign=None if signer is None else signer.sign)
            answer = await ask(broker, client, 310, send_fields(topic), b"stolen")
            assert isinstance(answer, RemotingCommand)
            assert answer.code == 16
            assert told in (answer.remark or "")
            assert told in caplog.text
            await client.oneway(
                broker.config.listen,
                RemotingCommand(code=310, ext_fields=send_fields(topic), body=b"stolen"),
            )
            await client.close()
        producer, admin = RemotingClient(sign=PRODUCER.sign), RemotingClient(sign=ADMIN.sign)
        sent = await ask(broker, producer, 310, send_fields("orders"), b"mine")
        assert isinstance(sent, RemotingCommand)
        assert sent.code == 0
        topic_fields = {
            "topic": "made", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        for client, code in ((producer, 16), (admin, 0)):
            answer = await ask(broker, client, 17, topic_fields)
            assert isinstance(answer, RemotingCommand)
            assert answer.code == code, answer.remark
        assert stored(broker) == {"orders": 1}
        assert "secret-of" not in caplog.text
        accounts.write_text(ACCOUNTS.replace("orders=PUB", "payments=PUB"))
        async with asyncio.timeout(10):  # the file is looked at each second
            while True:
                fields = send_fields("payments", key="K2")
                answer = await ask(broker, producer, 310, fields, b"mine")
                if isinstance(answer, RemotingCommand) and answer.code == 0:
                    break
                await asyncio.sleep(0.05)
        assert stored(broker) == {"orders": 1, "payments": 1}
        await asyncio.gather(producer.close(), admin.close())


async def test_an_enforcing_broker_with_certificates_of_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    server, good = authority.issue("server"), authority.issue("good")
    expired = authority.issue("expired", expired=True)
    settings = (
        'tls_mode = "enforcing"',
        f'tls_cert_file = "{server.cert}"',
        f'tls_key_file = "{server.key}"',
        f'tls_ca_file = "{authority.own.cert}"',
        'tls_client_auth = "require"',
    )
    async with broker_with(tmp_path, *settings) as broker:
        plain = RemotingClient()
        answer = await ask(broker, plain, 310, send_fields("orders"), b"plain")
        assert isinstance(answer, RemotingCommand)
        assert answer.code == 16
        late = RemotingClient(
            tls=client_context(
                ca_file=authority.own.cert, cert_file=expired.cert, key_file=expired.key
            )
        )
        lost = await ask(broker, late, 310, send_fields("orders"), b"late")
        assert isinstance(lost, ConnectError | ConnectionLostError)
        assert "certificate has expired" in caplog.text
        assert "plain text, and this port takes TLS only" in caplog.text
        assert stored(broker) == {}
        member = RemotingClient(
            tls=client_context(ca_file=authority.own.cert, cert_file=good.cert, key_file=good.key)
        )
        sent = await ask(broker, member, 310, send_fields("orders"), b"good")
        assert isinstance(sent, RemotingCommand)
        assert sent.code == 0
        assert stored(broker) == {"orders": 1}
        await asyncio.gather(plain.close(), late.close(), member.close())


async def test_a_broker_registers_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("server")
    name_server = NameServer(
        NameServerConfig(
            listen="127.0.0.1:0",
            security=SecurityConfig(
                tls_mode=TlsMode.ENFORCING,
                tls_cert_file=certificate.cert,
                tls_key_file=certificate.key,
            ),
        )
    )
    await name_server.start()
    settings = (
        f'name_servers = ["{name_server.address}"]',
        "tls_dial = true",
        f'tls_dial_ca_file = "{authority.own.cert}"',
        "trace_topic_enable = true",
    )
    async with broker_with(tmp_path, *settings):
        client = RemotingClient(tls=client_context(ca_file=authority.own.cert))
        command = RemotingCommand(code=105, ext_fields={"topic": "RMQ_SYS_TRACE_TOPIC"})
        async with asyncio.timeout(10):
            while (await client.request(name_server.address, command, 3_000)).code != 0:
                await asyncio.sleep(0.02)
        await client.close()
    await name_server.stop()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (('tls_mode = "sometimes"',), "tls_mode must be one of 'disabled'"),
        (('tls_mode = "enforcing"',), "tls_mode: TLS needs a certificate and its key"),
        (
            ('tls_client_auth = "yes"',),
            "tls_client_auth must be one of 'none', ",
        ),
        (("tls_cert_file = 7",), "tls_cert_file must be a path, not 7"),
        (("tls_dial = 1",), "tls_dial must be true or false, not 1"),
        (('proxy_protocol_from = "10.0.0.1"',), "proxy_protocol_from must be a list"),
        (('proxy_protocol_from = ["nowhere"]',), "proxy_protocol_from: 'nowhere'"),
        (('tls_mod = "enforcing"',), "did you mean 'tls_mode'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(configured(tmp_path, *settings))
    assert told in str(caught.value)


async def test_files_that_can_not_be_used_end_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("accounts: 7")
    for settings, told in (
        (("acl_enable = true", f'acl_file = "{wrong}"'), "acl_file: .*wrong: accounts"),
        (
            (
                'tls_mode = "permissive"',
                f'tls_cert_file = "{wrong}"',
                f'tls_key_file = "{wrong}"',
            ),
            "tls: certificate .*wrong",
        ),
        (("tls_dial = true", f'tls_dial_ca_file = "{wrong}"'), "tls_dial: authorities .*wrong"),
    ):
        with pytest.raises(ConfigError, match=told):
            Broker(load_config(configured(tmp_path, *settings)))
