"""`ledgermq send` and `ledgermq tail` as a person runs them, against scripted brokers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest

from campaigns.rig.waiting import until
from client.connection.instance import InstanceSettings
from ledgermq.exit_codes import EXIT_BROKEN_PIPE
from ledgermq.quick_try import tail_topic
from remoting.protocol.codes import RequestCode
from tests.client.fake_cluster import Act, Seen
from tests.client.push_setup import Setup, setup

TIMEOUT_S = 60


@asynccontextmanager
async def command(
    *words: str | bytes, stdout: int = asyncio.subprocess.PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command, killed at the end of the block where it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ledgermq", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(*words: str | bytes, typed: bytes = b"") -> tuple[int | None, str, str]:
    """Return a command's exit code and what it printed."""
    async with asyncio.timeout(TIMEOUT_S), command(*words) as process:
        out, err = await process.communicate(typed)
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def cluster() -> AsyncIterator[Setup]:
    async with setup() as cluster:
        yield cluster


def bodies(cluster: Setup) -> list[bytes]:
    records = sorted(cluster.group.stored("T"), key=lambda record: record.physical_offset)
    return [record.body for record in records]


async def test_bodies_are_sent_as_they_were_typed_and_piped(cluster: Setup) -> None:
    servers = ("--namesrv", cluster.name_server.address)
    code, out, err = await run("send", "T", b"\xff\xfe", *servers)
    assert (code, err) == (0, "")
    assert out.startswith("SEND_OK broker-a/")
    code, out, err = await run("send", "T", *servers, typed=b"one\n\xff two\r\nlast")
    assert (code, err) == (0, "")
    assert bodies(cluster) == [b"\xff\xfe", b"one", b"\xff two", b"last"]


async def test_a_tag_that_is_not_utf_8_is_refused_in_one_line(cluster: Setup) -> None:
    servers = ("--namesrv", cluster.name_server.address)
    code, _, err = await run("send", "T", "hello", "--tags", b"\xff", *servers)
    assert code == 2
    assert err.startswith("ledgermq: not stored: properties: text that is not UTF-8")
    assert err.count("\n") == 1
    assert os.fsdecode(b"\xff") not in err
    assert bodies(cluster) == []


async def test_a_reader_that_goes_ends_a_tail_as_sigpipe_would(cluster: Setup) -> None:
    for number in range(4):
        await cluster.send(b"line %d" % number, number)
    words = ("tail", "T", "--from-start", "--namesrv", cluster.name_server.address)
    reader, writer = os.pipe()
    async with asyncio.timeout(TIMEOUT_S), command(*words, stdout=writer) as process:
        os.close(writer)
        with os.fdopen(reader) as lines:  # and then, as `head` does, it goes
            for _ in range(4):
                assert " line " in await asyncio.to_thread(lines.readline)
        await cluster.send(b"one more")
        assert process.stderr is not None
        assert await process.wait() == EXIT_BROKEN_PIPE
        assert await process.stderr.read() == b""


async def test_a_refused_tail_says_so_in_one_line(cluster: Setup) -> None:
    cluster.group.script = lambda seen: (
        (16, "reading is forbidden")
        if seen.command.code == RequestCode.PULL_MESSAGE
        else Act.ANSWER
    )
    code, out, err = await run("tail", "T", "--namesrv", cluster.name_server.address)
    assert (code, out) == (2, "")
    assert err.startswith("ledgermq: broker ")
    assert err.endswith("answered code 16: reading is forbidden\n")
    assert err.count("\n") == 1


async def test_a_tail_does_not_spin_before_a_broker_that_holds_no_pulls(
    cluster: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer_at_once(seen: Seen) -> Act:
        if seen.command.code == RequestCode.PULL_MESSAGE:
            seen.command.ext_fields["sysFlag"] = "4"  # without the bit that lets it be held
        return Act.ANSWER

    cluster.group.script = answer_at_once
    tail = asyncio.create_task(
        tail_topic(
            [cluster.name_server.address],
            "T",
            from_start=True,
            count=1,
            instance=InstanceSettings(),
        )
    )
    pulls = partial(cluster.group.sends, RequestCode.PULL_MESSAGE)
    await until(lambda: len(pulls()) >= 12)  # three of each of four queues
    await cluster.send(b"at last", 2)
    await tail
    assert "at last" in capsys.readouterr().out
    at_s = [seen.at_s for seen in pulls() if seen.command.ext_fields["queueId"] == "0"]
    assert all(later - earlier > 0.04 for earlier, later in pairwise(at_s))
