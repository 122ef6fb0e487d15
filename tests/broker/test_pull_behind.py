"""Pulls at a replica that has not applied all that it knows, or is about to know, as committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.pull.pull import PullProcessor
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns, until
from raft.messages import NodeId
from raft.replicated_log import LogStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

TURNS = 50
OWN = NodeId("n0")


class Behind:
    """A replica with one message at offset 0, whose log tells of it what the test says."""

    def __init__(self, directory: Path) -> None:
        self.rig = Rig(directory)
        self.lacks = 0  # entries that are committed and not applied
        self.applied = 0  # of these, since
        self.leader_id: NodeId | None = None
        self.true_status = self.rig.log.status
        self.connection = FakeConnection()

    async def begin(self) -> None:
        send = self.rig.make(SendProcessor)
        await self.rig.ask(send.handle, RequestCode.SEND_MESSAGE_V2, send_fields(), b"hello")
        self.rig.log.depose()
        self.rig.log.status = self.status  # type: ignore[method-assign]

    def status(self) -> LogStatus:
        status = self.true_status()
        return replace(
            status,
            commit_index=status.applied_index + self.lacks,
            applied_index=status.applied_index + self.applied,
            leader_id=self.leader_id,
        )

    async def pull(self) -> None:
        pull = self.rig.make(PullProcessor, self.rig.tasks)
        fields = pull_fields()
        self.rig.give(pull.handle, RequestCode.PULL_MESSAGE, fields, b"", self.connection)
        await turns(TURNS)

    async def answer(self) -> ResponseCode:
        await until(lambda: self.connection.sent)
        return ResponseCode(self.connection.sent[0].code)


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Behind]:
    behind = Behind(tmp_path / "store")
    await behind.begin()
    yield behind
    await behind.rig.tasks.stop()
    behind.rig.queues.close()


async def test_a_replica_that_lacks_nothing_answers_at_once(behind: Behind) -> None:
    await behind.pull()
    assert await behind.answer() == ResponseCode.SUCCESS


async def test_a_reset_that_is_known_and_not_applied_is_waited_for(behind: Behind) -> None:
    behind.lacks = 1
    await behind.pull()
    assert behind.connection.sent == []
    behind.rig.state.resets.set("G", "T", 0, 7)
    behind.applied += 1
    assert await behind.answer() == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_who_is_elected_answers_once_it_is_ready(behind: Behind) -> None:
    behind.leader_id = OWN
    await behind.pull()
    assert behind.connection.sent == []
    behind.rig.state.resets.set("G", "T", 0, 7)
    behind.rig.log.leader = behind.rig.context.ready = True
    assert await behind.answer() == ResponseCode.PULL_OFFSET_MOVED
    assert behind.connection.sent[0].ext_fields["nextBeginOffset"] == "7"


@pytest.mark.parametrize("leader_id", [None, OWN])
async def test_it_waits_for_a_moment_only(behind: Behind, leader_id: NodeId | None) -> None:
    behind.leader_id, behind.lacks = leader_id, 1
    await behind.pull()
    assert behind.connection.sent == []
    behind.rig.now_ms += 2_000
    assert await behind.answer() == ResponseCode.SUCCESS
