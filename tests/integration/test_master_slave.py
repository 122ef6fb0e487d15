"""Clusters on the engines `async` and `sync`: the same broker and answers, another log under it."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from pathlib import Path

import pytest

from campaigns.rig.processes import request, send_command
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster, masters
from chaos.cluster.layout import LayoutError
from chaos.cluster.processes import ProcessTable
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
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
        report=lambda _: None,
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


def found(address: str, key: str) -> list[bytes]:
    """Return the bodies that the index finds by a key."""
    fields = {"topic": TOPIC, "key": key, "maxNum": "8"}
    times = {"beginTimestamp": "0", "endTimestamp": str(1 << 42)}
    answer = request(address, RemotingCommand(code=12, ext_fields={**fields, **times}))
    assert isinstance(answer, RemotingCommand)
    return [record.body for record in decode_records(answer.body)]


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
        assert found(node.address, "00000150") == [bodies[150]]
        table.stop([name], timeout_s=0)  # SIGKILL follows SIGTERM at once
        table.start(name, cluster.broker_process(directory, name))
        asyncio.run(cluster.await_ready(table, cluster.load_layout(directory)))
        assert stored(node.address) == bodies
        assert found(node.address, "00000003") == [bodies[3]]
        assert len(list((directory / "nodes").rglob("ha/commitlog/*"))) > 3
        assert asyncio.run(send(status.name_servers[0], [b"more" * 2])) == ["SEND_OK"]
    finally:
        cluster.down(directory)


def route(name_server: str) -> dict[str, str]:
    """Return the addresses of the topic's broker group by broker id."""
    answer = request(name_server, RemotingCommand(code=105, ext_fields={"topic": TOPIC}))
    assert isinstance(answer, RemotingCommand)
    if answer.code != ResponseCode.SUCCESS:
        return {}
    (group,) = json.loads(answer.body)["brokerDatas"]
    return dict(group["brokerAddrs"])


def test_consumers_go_on_at_the_slave_while_the_master_is_dead(tmp_path: Path) -> None:
    directory = tmp_path.resolve()
    status = up(directory, "sync", "async", 2)
    master, slave = status.nodes
    (name_server,) = status.name_servers
    table = ProcessTable(directory)
    name = f"{master.group}-{master.name}"
    bodies = [b"%08d" % number + bytes(1_000) for number in range(200)]
    try:
        assert (master.role, slave.role) == ("leader", "follower")
        await_until(lambda: followed_by(slave.address) == master.name, "the slave has its master")
        assert set(asyncio.run(send(name_server, bodies))) == {"SEND_OK"}
        assert stored(slave.address) == bodies, "it had all before the answers"
        await_until(lambda: len(route(name_server)) == 2, "both are registered")
        assert route(name_server) == {"0": master.address, "1": slave.address}
        refused = request(slave.address, send_command(TOPIC, b"x", "1" * 32))
        assert isinstance(refused, RemotingCommand)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        table.stop([name], timeout_s=0)
        await_until(lambda: route(name_server) == {"1": slave.address}, "the master is gone")
        assert stored(slave.address) == bodies
        ends = [queue_end(slave.address, queue_id) for queue_id in range(4)]
        assert sum(ends) == len(bodies), "the slave says where queues end"
        assert commit_and_query(slave.address, 7) == 7
        with pytest.raises(ClientError):
            asyncio.run(send(name_server, [b"lost" * 2]))
        table.start(name, cluster.broker_process(directory, name))
        asyncio.run(cluster.await_ready(table, cluster.load_layout(directory)))
        await_until(lambda: len(route(name_server)) == 2, "both are registered")
        await_until(lambda: followed_by(slave.address) == master.name, "the slave has its master")
        assert asyncio.run(send(name_server, [b"more" * 2])) == ["SEND_OK"]
        assert stored(slave.address) == sorted([*bodies, b"more" * 2])
        assert commit_and_query(master.address, 3) == 3, "what the slave took is forgotten"
    finally:
        cluster.down(directory)


def followed_by(address: str) -> str | None:
    """Return the leader that a broker knows."""
    answer = request(address, RemotingCommand(code=RequestCode.LEDGERMQ_STATUS))
    leader = None if isinstance(answer, RemotingError) else json.loads(answer.body)["leader"]
    return None if leader is None else str(leader)


def commit_and_query(address: str, offset: int) -> int:
    """Commit a consumer offset, and return what a query says."""
    fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0"}
    commit = RemotingCommand(code=15, ext_fields={**fields, "commitOffset": str(offset)})
    done = request(address, commit)
    assert isinstance(done, RemotingCommand)
    assert done.code == ResponseCode.SUCCESS, done.remark
    answer = request(address, RemotingCommand(code=14, ext_fields=fields))
    assert isinstance(answer, RemotingCommand)
    return int(answer.ext_fields["offset"])


def queue_end(address: str, queue_id: int) -> int:
    fields = {"topic": TOPIC, "queueId": str(queue_id)}
    answer = request(address, RemotingCommand(code=30, ext_fields=fields))
    assert isinstance(answer, RemotingCommand)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext_fields["offset"])


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
    with pytest.raises(LayoutError, match="flush is a setting of async and sync alone"):
        up(tmp_path, "raft", "sync", 1)


def test_a_slave_is_made_master_by_hand(tmp_path: Path) -> None:
    """A master whose disk is lost: its slave goes on, and it comes back as a slave."""
    directory = tmp_path.resolve()
    status = up(directory, "sync", "async", 2)
    master, slave = status.nodes
    (name_server,) = status.name_servers
    table = ProcessTable(directory)
    lost = f"{master.group}-{master.name}"
    bodies = [b"%08d" % number for number in range(50)]
    told: list[str] = []
    try:
        await_until(lambda: followed_by(slave.address) == master.name, "the slave has its master")
        assert set(asyncio.run(send(name_server, bodies))) == {"SEND_OK"}
        table.stop([lost], timeout_s=0)
        shutil.rmtree(directory / "nodes" / master.group / master.name)
        with pytest.raises(cluster.ClusterError, match="n7 is no node of it: broker-a-n0"):
            masters.change_master(directory, "n7", report=told.append)
        masters.change_master(directory, slave.name, report=told.append)
        assert told == ["n1 is the master of broker-a; n0 was"]
        assert cluster.load_layout(directory).master_of(master.group).node == slave.name
        assert stored(slave.address) == bodies
        await_until(lambda: route(name_server) == {"0": slave.address}, "it is in the routes")
        table.start(lost, cluster.broker_process(directory, lost))
        await_until(lambda: followed_by(master.address) == slave.name, "the old one follows it")
        assert asyncio.run(send(name_server, [b"more" * 2])) == ["SEND_OK"]
        assert stored(master.address) == sorted([*bodies, b"more" * 2])
        cluster.down(directory)
        again = up(directory, "sync", "async", 2)
        assert {node.name: node.role for node in again.nodes} == {
            master.name: "follower",
            slave.name: "leader",
        }, "`up` keeps the master that was made by hand"
    finally:
        cluster.down(directory)


def test_a_group_that_elects_has_no_master_to_be_made(tmp_path: Path) -> None:
    directory = tmp_path.resolve()
    cluster.up(
        directory,
        replicas=1,
        name_servers=1,
        base_port=0,
        namesrv_port=0,
        detach=True,
        report=lambda _: None,
    )
    try:
        with pytest.raises(cluster.ClusterError, match="the engine raft elects its masters"):
            masters.change_master(directory, "n0", report=lambda _: None)
    finally:
        cluster.down(directory)
