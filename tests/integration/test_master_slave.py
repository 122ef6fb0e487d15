"""Clusters on the engines `async` and `sync`: the same broker and answers, another log under it."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from campaigns.rig.processes import request
from chaos.cluster import cluster
from chaos.cluster.layout import LayoutError
from chaos.cluster.processes import ProcessTable
from client.message import Message
from client.produce.producer import Producer
from remoting.errors import RemotingError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

pytestmark = pytest.mark.cluster

TOPIC = "T"


def up(directory: Path, engine: str, flush: str, replicas: int) -> cluster.ClusterStatus:
    return cluster.up(
        directory,
        engine=engine,
        replicas=replicas,
        name_servers=1,
        base_port=0,
        namesrv_port=0,
        detach=True,
        say=lambda _: None,
        settings={"segment_size_bytes_max": 1 << 16, "flush": flush},
    )


async def send(name_server: str, bodies: list[bytes]) -> list[str]:
    """Send each, and return the statuses."""
    async with Producer("PG", name_server) as producer:
        results = [
            await producer.send(Message(topic=TOPIC, body=body, keys=(body[:8].decode(),)))
            for body in bodies
        ]
    return [result.status.name for result in results]


def stored(address: str) -> list[bytes]:
    """Return the bodies in all queues of the topic, as a consumer reads them at that broker."""
    bodies: list[bytes] = []
    for queue_id in range(4):
        for at in itertools.count():
            pull = RemotingCommand(
                code=11,
                ext_fields={
                    "consumerGroup": "G",
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "queueOffset": str(at),
                    "maxMsgNums": "1",
                    "sysFlag": "4",
                    "commitOffset": "0",
                    "suspendTimeoutMillis": "0",
                    "subscription": "*",
                    "subVersion": "0",
                    "expressionType": "TAG",
                },
            )
            answer = request(address, pull)
            if isinstance(answer, RemotingError) or answer.code != ResponseCode.SUCCESS:
                break
            bodies += [record.body for record in decode_records(answer.body)]
    return sorted(bodies)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_master_alone_keeps_what_it_has_answered(tmp_path: Path, flush: str) -> None:
    directory = tmp_path.resolve()
    status = up(directory, "async", flush, 1)
    (node,) = status.nodes
    bodies = [b"%08d" % number + bytes(1_000) for number in range(200)]
    table = ProcessTable(directory)
    name = f"{node.group}-{node.name}"
    try:
        assert set(asyncio.run(send(status.name_servers[0], bodies))) == {"SEND_OK"}
        assert stored(node.address) == bodies
        table.stop([name], timeout_s=0)  # SIGKILL follows SIGTERM at once
        table.start(name, cluster.broker_process(directory, name))
        asyncio.run(cluster.await_ready(table, cluster.load_layout(directory)))
        assert stored(node.address) == bodies
        assert len(list((directory / "nodes").rglob("ha/commitlog/*"))) > 3
        assert asyncio.run(send(status.name_servers[0], [b"more" * 2])) == ["SEND_OK"]
    finally:
        cluster.down(directory)


def test_sync_without_a_slave_says_so_and_stores(tmp_path: Path) -> None:
    directory = tmp_path.resolve()
    status = up(directory, "sync", "sync", 1)
    try:
        sent = asyncio.run(send(status.name_servers[0], [b"00000001"]))
        assert sent == ["SLAVE_NOT_AVAILABLE"]
        assert stored(status.nodes[0].address) == [b"00000001"]
    finally:
        cluster.down(directory)


def test_what_the_engines_do_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="the engine async has no slaves yet"):
        up(tmp_path, "async", "sync", 2)
    with pytest.raises(LayoutError, match="flush is a setting of async and sync alone"):
        up(tmp_path, "raft", "sync", 1)
