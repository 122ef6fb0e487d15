"""The README's commands as they are written, and how a cluster in the foreground and one that was
left behind end."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.processes import ledgermq, ledgermq_here, running
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.processes import ProcessTable
from client.message import Message
from client.produce.producer import Producer
from remoting.records.message_id import parse_offset_msg_id

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
IGNORABLE = (signal.SIGINT, signal.SIGHUP)
PORTS = ("--base-port", "0", "--namesrv-port", "0", "--name-servers", "1")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    if (path / "cluster.json").exists():
        cluster.down(path)


def documented_commands() -> list[list[str]]:
    """The words of every `ledgermq ...` line of the README's code blocks, without the comment."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line.startswith("ledgermq ")
    ]
    found = [
        shlex.split(re.split(r"\s{3,}", part.strip())[0])
        for line in lines
        for part in re.split(r"\s\|\s", line)
    ]
    assert len(found) >= 8
    return found


def test_every_documented_command_and_option_exists() -> None:
    for words in documented_commands():
        path = [words[1]]
        if path[0] in {"cluster", "chaos", "store"}:
            path.append(words[2].split("|")[0])
        done = ledgermq_here(*path, "--help")
        assert done.returncode == 0, words
        for option in re.findall(r"--[a-z-]+", " ".join(words)):
            assert option in done.stdout, f"{' '.join(words)}: no {option}"


def test_every_documented_file_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"scenarios/[\w-]+\.toml", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_quick_try_as_written(directory: Path) -> None:
    """`cluster up DIR --detach`, `status`, `send`, `tail`: with this machine's free ports."""
    up = ledgermq("cluster", "up", directory, "--detach", *PORTS)
    assert up.returncode == 0, up.stderr
    name_server = up.stdout.splitlines()[0].removeprefix("name servers: ")
    status = ledgermq("cluster", "status", directory)
    assert status.stdout.count("follower") == 2, status.stdout
    sent = ledgermq("send", "TOPIC", "TEXT", "--namesrv", name_server)
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout.startswith("SEND_OK broker-a/")
    tail = ledgermq("tail", "TOPIC", "--from-start", "--count", "1", "--namesrv", name_server)
    assert tail.returncode == 0, tail.stderr
    assert tail.stdout.rstrip().endswith(" TEXT")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_foreground_cluster_ends_with_its_terminal(
    directory: Path, number: signal.Signals
) -> None:
    with running("cluster", "up", directory, *PORTS) as process:
        _await_up(process)
        table = ProcessTable(directory)
        assert len(table.names()) == 4
        # As a terminal does: to every process of the foreground group.
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert f"the stores stay in {directory / 'nodes'}" in out
        assert err == ""
        assert table.names() == []


def test_an_ignored_interrupt_ends_it_and_an_ignored_hangup_does_not(directory: Path) -> None:
    """As a script's `&` starts it, and as `nohup` does."""
    with running("cluster", "up", directory, *PORTS, ignoring=list(IGNORABLE)) as process:
        _await_up(process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGCONT)
        table = ProcessTable(directory)
        assert all(table.find(name) is not None for name in table.names())
        process.send_signal(signal.SIGINT)
        assert "stopped: no process is left" in process.communicate(timeout=20)[0]
        assert table.names() == []


@pytest.mark.parametrize("ignoring", [(), IGNORABLE], ids=["heeded", "ignored"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_is_broken_off_leaves_nothing(
    directory: Path, number: signal.Signals, ignoring: tuple[signal.Signals, ...]
) -> None:
    with running("cluster", "up", directory, "--detach", *PORTS, ignoring=ignoring) as process:
        pids = directory / "pids"
        await_until(lambda: pids.exists() and any(pids.glob("*.json")), "it starts processes")
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out) == (130, "")
        assert err == f"ledgermq: interrupted: no process is left; {directory} stays\n"
    assert ProcessTable(directory).names() == []


def _await_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert any("leader" in line for line in lines), lines


def test_a_detached_cluster_outlives_its_parent_and_down_stops_just_it(
    directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    try:
        for path in (directory, other):
            # The parent is a shell of its own session, gone with its whole process group.
            words = [sys.executable, "-m", "ledgermq", "cluster", "up", str(path), "--detach"]
            shell = subprocess.Popen(
                ["/bin/sh", "-c", shlex.join([*words, *PORTS, "--replicas", "1"])],
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            assert shell.wait(timeout=30) == 0
            assert not _is_alive(shell.pid)
        ours, theirs = ProcessTable(directory), ProcessTable(other)
        assert [ours.state(name) in {"S", "R"} for name in ours.names()] == [True, True]
        down = ledgermq("cluster", "down", directory)
        assert down.stdout.splitlines() == ["stopped broker-a-n0", "stopped namesrv-0"]
        await_until(lambda: ours.names() == [], "ours have ended")
        assert [theirs.state(name) in {"S", "R"} for name in theirs.names()] == [True, True]
        again = ledgermq("cluster", "down", directory)
        assert (again.returncode, again.stdout) == (0, "")
    finally:
        if (other / "cluster.json").exists():
            cluster.down(other)


def offset_msg_id_of_a_send(name_server: str, address: str) -> str:
    """The offset message id of a send, by a client that finds the broker by its route."""

    async def send() -> str:
        async with Producer("by-name", [name_server]) as producer:
            result = await producer.send(Message(topic="T", body=b"x"))
            assert producer.instance.routes.nodes() == [address]
            assert result.offset_msg_id is not None
            return result.offset_msg_id

    return asyncio.run(send())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_name_server_and_a_broker_by_hand(tmp_path: Path, host: str) -> None:
    """`ledgermq namesrv --listen` and `ledgermq broker --config`, each with its line on stdout.

    Addresses may be names: what clients are told stays the name, records have its address.
    """
    name_server, listen, raft = (f"{host}:{free_port()}" for _ in range(3))
    config = tmp_path / "broker.toml"
    config.write_text(
        f'group = "broker-a"\nnode = "n0"\nlisten = "{listen}"\nraft_listen = "{raft}"\n'
        f'store = "{tmp_path / "store"}"\nname_servers = ["{name_server}"]\n'
        f'[peers]\nn0 = "{raft}"\n',
        encoding="utf-8",
    )
    processes = []
    try:
        for arguments, line in (
            (["namesrv", "--listen", name_server], f"ledgermq namesrv listening on {name_server}"),
            (
                ["broker", "--config", str(config)],
                f"ledgermq broker broker-a/n0 listening on {listen}",
            ),
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "ledgermq", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline().strip() == line
        sent = ledgermq("send", "T", "by hand", "--namesrv", name_server)
        assert sent.returncode == 0, sent.stderr
        told = parse_offset_msg_id(offset_msg_id_of_a_send(name_server, listen))
        assert told[:2] == ("127.0.0.1", int(listen.rpartition(":")[2]))
        for process in processes[::-1]:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=15) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()
