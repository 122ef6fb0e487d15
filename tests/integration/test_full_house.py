"""A broker with as many clients as it takes: operators and members are served all the same."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.waiting import await_until
from chaos.cluster import cluster, members
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder, encode

pytestmark = pytest.mark.cluster

SETTINGS = {"connections_max": 8, "connections_reserved": 4}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if (tmp_path / "cluster.json").exists():
        cluster.down(tmp_path)


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def ask(peer: socket.socket) -> int:
    """A client's request over a connection of its own; the code of the answer."""
    fields = {"topic": "T", "queueId": "0"}
    peer.sendall(encode(RemotingCommand(code=RequestCode.GET_MAX_OFFSET, ext_fields=fields)))
    decoder = FrameDecoder()
    while not (answers := decoder.feed(peer.recv(65_536))):
        continue
    return answers[0].code


def test_status_and_members_beside_a_full_house(directory: Path) -> None:
    up = cluster.up(
        directory,
        namesrv_port=0,
        base_port=0,
        detach=True,
        settings=SETTINGS,
        report=lambda _: None,
    )
    leader = next(node for node in up.nodes if node.role == "leader")
    busy: list[socket.socket] = []
    try:
        # Followers' brokers hold connections to the leader too, so the last may be in the reserve.
        for _ in range(8):
            busy.append(connect(leader.address))
            ask(busy[-1])
        busy += [connect(leader.address) for _ in range(20)]
        late = connect(leader.address)
        busy.append(late)
        assert ask(late) == ResponseCode.SYSTEM_BUSY

        def all_answer() -> bool:
            return all(node.term is not None for node in cluster.status(directory).nodes)

        await_until(all_answer, "status of every node")
        assert len(members.list_members(directory)) == 3
    finally:
        for peer in busy:
            peer.close()
    await_until(lambda: _is_served(leader.address), "clients are served again")


def test_who_only_connects_keeps_nobody_out(directory: Path) -> None:
    up = cluster.up(
        directory,
        replicas=1,
        namesrv_port=0,
        base_port=0,
        detach=True,
        settings=SETTINGS,
        report=lambda _: None,
    )
    silent = [connect(up.nodes[0].address) for _ in range(12)]
    try:
        await_until(lambda: _is_served(up.nodes[0].address), "a client that asks is served")
    finally:
        for peer in silent:
            peer.close()


def _is_served(address: str) -> bool:
    with connect(address) as peer:
        return ask(peer) != ResponseCode.SYSTEM_BUSY
