"""Clients through TLS to a real name server and a real broker that take nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.rig.certificates import Authority
from client.connection.instance import InstanceSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import Message, MessageQueue, SendStatus
from client.produce.producer import Producer, ProducerSettings
from remoting.connections.security_config import SecurityConfig
from remoting.connections.tls import TlsMode, client_context
from tests.client.real_broker import real_broker


async def test_only_clients_with_tls_get_through(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "stranger")
    certificate = authority.issue("server")
    security = SecurityConfig(
        tls_mode=TlsMode.ENFORCING,
        tls_cert_file=certificate.cert,
        tls_key_file=certificate.key,
        tls_dial=True,
        tls_dial_ca_file=authority.own.cert,
    )
    async with real_broker(tmp_path, security=security) as broker:
        good = InstanceSettings(tls=client_context(ca_file=authority.own.cert))
        settings = ProducerSettings(instance=good, timeout_ms=10_000)
        async with Producer("PG", broker.name_servers, settings=settings) as producer:
            sent = await producer.send(Message(topic="T", body=b"sealed"))
            assert sent.status is SendStatus.SEND_OK
        wrong = InstanceSettings(tls=client_context(ca_file=stranger.own.cert))
        for instance in (InstanceSettings(), wrong):
            settings = ProducerSettings(instance=instance, timeout_ms=1_000)
            async with Producer("PG", broker.name_servers, settings=settings) as producer:
                with pytest.raises(ClientError) as refused:
                    await producer.send(Message(topic="T", body=b"open"))
                assert refused.value.definite  # no route was told, so that nothing left
        async with PullConsumer(
            "CG", broker.name_servers, settings=PullConsumerSettings(instance=good)
        ) as consumer:
            ends = {queue: await consumer.max_offset(queue) for queue in await consumer.queues("T")}
            assert sum(ends.values()) == 1
            queue = MessageQueue("T", "broker-a", sent.queue.queue_id)
            assert (await consumer.pull(queue, 0)).messages[0].body == b"sealed"
