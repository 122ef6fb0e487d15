"""Pulls where a configured master has slaves: whom answers name next, and what a slave says of a
queue's ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.pull.pull import PullProcessor
from broker.request.request import Request
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns
from raft.messages import NodeId
from raft.replicated_log import LogStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import LANGUAGE_JAVA, LANGUAGE_PYTHON, RemotingCommand
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

PEERS = {"n0": "127.0.0.1:10915", "n1": "127.0.0.1:10916"}
MESSAGES = 4
SUSPENDED = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A broker with four messages in queue 0 and four in queue 1 behind them."""
    made = Rig(tmp_path / "store")
    send = made.make(SendProcessor)
    for queue in (0, 1):
        for _ in range(MESSAGES):
            fields = send_fields(queue=queue, key=None)
            await made.ask(send.handle, RequestCode.SEND_MESSAGE_V2, fields, bytes(100))
    yield made
    await made.tasks.stop()
    made.queues.close()


def configure(rig: Rig, *, master: str = "n0", **values: object) -> None:
    """Put this broker, n0, on the engine async; in memory are the 1000 last bytes of the log."""
    rig.replica.config = replace(
        rig.config,
        engine="async",
        peers=PEERS,
        master=master,
        in_memory_size_bytes_max=1_000,
        **values,  # type: ignore[arg-type]
    )


def become_slave(rig: Rig, *, has_master: bool) -> None:
    """From here on this broker follows n1, or misses it."""
    configure(rig, master="n1", slave_read_enable=True)
    rig.log.depose()
    true_status: Callable[[], LogStatus] = rig.log.status

    def status() -> LogStatus:
        return replace(true_status(), leader_id=NodeId("n1") if has_master else None)

    async def read_index() -> int:
        return len(rig.log.entries)

    rig.log.status = status  # type: ignore[method-assign]
    if not has_master:
        rig.log.read_index = read_index  # type: ignore[method-assign]


async def pull(rig: Rig, *, language: int = LANGUAGE_JAVA, **more: str) -> FakeConnection:
    """Send a pull of a client in that language; its answer may come later."""
    connection = FakeConnection()
    command = RemotingCommand(
        code=RequestCode.PULL_MESSAGE, opaque=1, language=language, ext_fields=pull_fields(**more)
    )
    handler = rig._bound(rig.make(PullProcessor, rig.tasks).handle, RequestCode.PULL_MESSAGE)
    handler(Request(connection, command))  # type: ignore[arg-type]
    await turns()
    return connection


async def suggested(rig: Rig, **more: str) -> str:
    """Return the id of the broker that a pull's answer names."""
    (answer,) = (await pull(rig, **more)).sent
    return answer.ext_fields["suggestWhichBrokerId"]


async def test_who_is_far_behind_is_sent_to_the_slave_and_back(rig: Rig) -> None:
    configure(rig, slave_read_enable=True)
    assert await suggested(rig, offset="0", maxMsgNums="1") == "1"
    assert await suggested(rig, queue="1", queueId="1", queueOffset="3") == "0"
    assert await suggested(rig, queueOffset=str(MESSAGES)) == "0"


async def test_without_slave_reads_everybody_stays_at_the_master(rig: Rig) -> None:
    configure(rig)
    assert await suggested(rig, maxMsgNums="1") == "0"


async def test_a_raft_group_names_its_leader(rig: Rig) -> None:
    rig.replica.config = replace(rig.config, slave_read_enable=True, in_memory_size_bytes_max=1)
    assert await suggested(rig, maxMsgNums="1") == "0"


async def test_a_group_names_its_brokers_itself(rig: Rig) -> None:
    configure(rig, slave_read_enable=True)
    rig.state.groups["G"] = {"whichBrokerWhenConsumeSlowly": 2, "brokerId": 3}
    assert await suggested(rig, maxMsgNums="1") == "2"
    assert await suggested(rig, queueId="1", queueOffset="3") == "3"


async def test_a_filter_that_matches_nothing_counts_as_read(rig: Rig) -> None:
    configure(rig, slave_read_enable=True)
    connection = await pull(rig, subscription="nothing")
    assert connection.sent[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert connection.sent[0].ext_fields["suggestWhichBrokerId"] == "1"


async def test_a_slave_sends_back_who_has_caught_up(rig: Rig) -> None:
    become_slave(rig, has_master=True)
    rig.state.groups["G"] = {"brokerId": 3}
    assert await suggested(rig, maxMsgNums="1") == "1"
    assert await suggested(rig, queueId="1", queueOffset="3") == "0"


@pytest.mark.parametrize("has_master", [True, False])
@pytest.mark.parametrize(
    ("topic_queue", "offset"), [("0", MESSAGES + 7), ("2", 5)], ids=["beyond", "empty"]
)
async def test_a_slave_corrects_no_offset(
    rig: Rig, has_master: bool, topic_queue: str, offset: int
) -> None:
    become_slave(rig, has_master=has_master)
    connection = await pull(rig, queueId=topic_queue, queueOffset=str(offset))
    assert connection.sent[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert connection.sent[0].ext_fields["nextBeginOffset"] == str(offset)
    assert connection.sent[0].ext_fields["suggestWhichBrokerId"] == "0"


async def test_a_slave_skips_no_message_that_only_the_master_keeps(rig: Rig) -> None:
    become_slave(rig, has_master=False)
    rig.queues.get("T", 0).trim(rig.log.entries[2].position)
    assert rig.queues.get("T", 0).min_offset > 0
    connection = await pull(rig, queueOffset="0")
    assert connection.sent[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert connection.sent[0].ext_fields["nextBeginOffset"] == "0"


async def test_a_slave_lets_such_a_pull_wait_for_a_second(rig: Rig) -> None:
    become_slave(rig, has_master=False)
    connection = await pull(rig, queueOffset="9", **SUSPENDED)
    assert connection.sent == []
    rig.now_ms += 999
    rig.desk.long_polling.expire(rig.passed_ms)
    await turns()
    assert connection.sent == []
    rig.now_ms += 1
    rig.desk.long_polling.expire(rig.passed_ms)
    await turns()
    assert connection.sent[0].code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_a_client_of_ours_is_sent_to_the_master_at_once(rig: Rig) -> None:
    become_slave(rig, has_master=True)
    connection = await pull(rig, language=LANGUAGE_PYTHON, queueOffset="9", **SUSPENDED)
    assert connection.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
