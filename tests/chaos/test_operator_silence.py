"""What a leader says of replicas that are down, as the part `operator` holds it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.context import WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.operator.requests import OperatorRequests
from chaos.workload.parts.operator.silence import SilenceWatcher
from remoting.protocol.command import RemotingCommand
from tests.chaos.histories import ops_of
from tests.chaos.nemesis.fakes import FakeWorld


class _Leader:
    """Answers GET_BROKER_HA_STATUS, and ends the watch; `back`: so does a replica."""

    def __init__(self, body: dict[str, Any], ends: asyncio.Event, world: FakeWorld) -> None:
        self._body = body
        self._ends = ends
        self._world = world
        self.back: str | None = None

    async def json_at(self, _: str, command: RemotingCommand) -> dict[str, Any]:
        self._ends.set()
        if self.back is not None:
            self._world.states[self.back] = "S"
        return self._body


async def _asked(tmp_path: Path, in_sync: int, *, comes_back: bool = False) -> list[dict[str, Any]]:
    world, ends = FakeWorld(), asyncio.Event()
    leader, other, down = world.layout.brokers
    nodes = tuple(place.node for place in world.layout.brokers)

    async def status(name: str) -> SimpleNamespace:
        return SimpleNamespace(ready=name == leader.name, voters=nodes, learners=())

    system = SimpleNamespace(processes=world, status=status)
    context = SimpleNamespace(world=SimpleNamespace(system=system, layout=world.layout))
    world.states[down.name] = "gone"
    shown = [{"addr": other.address, "inSync": True}]
    body = {"master": True, "inSyncSlaveNums": in_sync, "haConnectionInfo": shown}
    answers = _Leader(body, ends, world)
    answers.back = down.name if comes_back else None
    with HistoryWriter(tmp_path / "history", started_ns=0) as history:
        watcher = SilenceWatcher(
            cast(WorkContext, context),
            cast(OperatorRequests, answers),
            Expectations(history, client="c", client_group="g"),
            group=leader.group,
        )
        await watcher.watch(ends)
    return [row for row in ops_of(tmp_path / "history") if row["f"] == "ask"]


@pytest.mark.parametrize(("in_sync", "is_right"), [(0, True), (1, True), (2, False)])
async def test_a_replica_that_is_down_is_not_in_sync(
    tmp_path: Path, in_sync: int, is_right: bool
) -> None:
    (row,) = await _asked(tmp_path, in_sync)
    assert (row["ref"] == row["status"]) is is_right
    assert "decision" not in row or row["decision"] is None  # it is so whatever faults there are


async def test_one_that_came_back_meanwhile_says_nothing(tmp_path: Path) -> None:
    assert not await _asked(tmp_path, 2, comes_back=True)
