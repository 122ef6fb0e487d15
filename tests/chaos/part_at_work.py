"""A part of the workload at work against one broker in this process, and what it has recorded."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from campaigns.rig.waiting import until
from chaos.cluster.layout import NameServerPlace
from chaos.experiment.load import part_topics, slot_names
from chaos.links.none import NoLinks
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import parse_scenario
from chaos.workload.context import WorkContext
from chaos.workload.parts.applications.applications import ApplicationsPart
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.catalogue import PARTS
from chaos.workload.parts.common.part import PartKit, WorkloadPart
from chaos.worlds.world import World
from client.message import MessageQueue
from tests.chaos.histories import ops_of
from tests.client.real_broker import make_topic, real_broker

__all__ = ["Row", "asked_of", "by_kind", "drill_alone", "otherwise", "part_at_work"]

Row = dict[str, Any]


@contextlib.asynccontextmanager
async def part_at_work(
    tmp_path: Path, name: str, keys: str, *, load_s: float
) -> AsyncIterator[tuple[WorkloadPart, asyncio.Event]]:
    """The part on its topic of two queues, if it has one; yields it with the event that stops its
    senders."""
    text = f"[load]\nseconds = {load_s}\n[workload]\nimpatient_share = 0\n[workload.{name}]\n{keys}"
    scenario = parse_scenario(text, name="x")
    config = {
        "transaction_timeout_ms": scenario.transactions.timeout_ms,
        "transaction_check_interval_ms": scenario.transactions.check_interval_ms,
    }
    async with real_broker(tmp_path, **config) as broker:
        topics = part_topics(scenario)[name]
        for topic in topics:
            await make_topic(broker, topic, 2)
        place = SimpleNamespace(name="broker-a-n0", node="n0", address=broker.address)

        async def status(name: str) -> SimpleNamespace:
            assert name == "broker-a-n0"
            return SimpleNamespace(ready=True, term=1, voters=("n0",), learners=())

        layout = SimpleNamespace(
            cluster="DefaultCluster",
            groups={"broker-a": (place,)},
            name_servers=(NameServerPlace(name="ns", address=broker.name_server.address),),
            name_server_addresses=tuple(broker.name_servers),
            broker_settings={},
            brokers=(place,),
        )
        world = cast(
            World,
            SimpleNamespace(
                layout=layout,
                dial_table=lambda slot: {},
                system=SimpleNamespace(status=status, processes=None),
                links=NoLinks(),
            ),
        )
        with HistoryWriter(tmp_path / "history", started_ns=0) as history:
            context = WorkContext(
                scenario=scenario,
                world=world,
                history=history,
                queues=(),
                nodes={broker.address: "n0"},
                part_queues={
                    name: [MessageQueue(topic, "broker-a", at) for topic in topics for at in (0, 1)]
                },
            )
            section = scenario.parts[name]
            slots = {
                slot: context.slot(slot, random.Random(slot)) for slot in PARTS[name].slots(section)
            }
            assert set(slots) <= set(slot_names(scenario))
            kit = PartKit(context=context, section=section, slots=slots, rng=random.Random(1))
            part = PARTS[name].make(kit)
            stop, drained = asyncio.Event(), asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(part.run(stop, drained))
                yield part, stop
                stop.set()
                await part.idle()
                await until(part.is_settled)
                await until(part.has_read)
                drained.set()


async def drill_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    drill: Callable[[Bench], Any],
    *,
    ends_s: float | None = None,
) -> set[str]:
    """Have one drill of `applications` alone; return what was otherwise than it expects."""

    async def run(part: ApplicationsPart, *_: asyncio.Event) -> None:
        await part._have(part._benches[name], lambda bench: drill(bench).run(), ends_s=ends_s)
        part._idle.set()

    monkeypatch.setattr(ApplicationsPart, "run", run)
    async with part_at_work(tmp_path, "applications", "calm_s = 0", load_s=0.1):
        pass
    return otherwise(tmp_path)


def by_kind(path: Path) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = collections.defaultdict(list)
    for row in ops_of(path):
        kinds[row["f"]].append(row)
    return kinds


def otherwise(folder: Path) -> set[str]:
    """Return what was answered otherwise than is expected."""
    asks = [op for op in by_kind(folder / "history")["ask"] if op["type"] == "ok"]
    return {op["key"] for op in asks if op["ref"] not in (None, op["status"])}


def asked_of(folder: Path) -> str:
    return "\n".join(op["key"] for op in by_kind(folder / "history")["ask"])
