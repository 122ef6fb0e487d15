"""One experiment, from a scenario to a run directory that the verifier can read.

Place in the data path: `ledgermq chaos run` calls `run_experiment`; this drives a World through the
phases and runs workload, nemesis, watch and progress side by side.

    start   cluster up, topics made
    load    workload at work, faults injected on time and healed
    heal    senders have stopped; every node is back and caught up, transactions are decided
    drain   every queue is read to its end, consumer groups catch up, offsets are read
    stop    clients leave, brokers stop cleanly
    export  the tables are complete, run.json is written last

History and traces become tables meanwhile, in a process of its own (`chaos.recording.live_tables`),
on virtual time at the end: such a run is over before a process has begun.

Invariants: whatever happens, faults are healed and no process is left; a harness error ends as a
run that is not complete, which the verifier calls unknown, never as a failure of the cluster; all
randomness comes from the seed.

Source: the run format; docs/DESIGN.md section 7.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chaos.cluster.access import access_of, write_accounts
from chaos.cluster.layout import BrokerPlace, LayoutError
from chaos.cluster.processes import ProcessError
from chaos.experiment.ended_brokers import ended_by_mistake
from chaos.experiment.known_errors import KNOWN_ERRORS, first_of
from chaos.experiment.laboratory_log import laboratory_log
from chaos.experiment.load import TOOL_SLOT, Workload, part_manifest, part_topics, slot_names
from chaos.experiment.nemesis_runner import Nemesis
from chaos.experiment.phases import Phases
from chaos.experiment.progress import Progress
from chaos.experiment.quiesce import (
    await_caught_up,
    await_ended,
    await_idle,
    await_settled,
    drain_all,
    read_system_queues,
)
from chaos.experiment.scenario_layout import ACL_FILE
from chaos.experiment.world_catalogue import WORLDS, WorldSettingsError
from chaos.nemesis.catalogue import CATALOGUE
from chaos.recording.history import HistoryWriter
from chaos.recording.live_tables import LiveTables
from chaos.recording.run_export import ExportResult, export_run, sources_of
from chaos.recording.run_manifest import describe_environment, write_manifest
from chaos.recording.sparse_files import cut_trailing_holes
from chaos.recording.table_converter import HISTORY_FILE
from chaos.scenario.scenario import Scenario, route_expiry_ms
from chaos.scenario.schedule import FaultStep
from chaos.systems.base import SystemFailedError
from chaos.systems.watch import ClusterWatch
from chaos.workload.context import WorkContext
from chaos.workload.offset_reader import make_tool
from chaos.workload.topics import make_topics
from chaos.workload.transactional_sender import IMMUNITY_BEYOND_S_MAX
from chaos.worlds.host import WorldOptions
from chaos.worlds.world import World

__all__ = [
    "ExperimentError",
    "ExperimentInterrupted",
    "NothingBegunError",
    "run_experiment",
]

ROUTE_GONE_MS: Final = 2_000  # name servers notice the end of a connection at once
IN_SYNC_REPLICAS: Final = 2  # a broker's default
START_SECONDS_MAX: Final = 60.0
CLIENTS_END_SECONDS_MAX: Final = 60.0
BUSY: Final = 4  # by so much longer on real time, where a machine may have other work to do


class ExperimentError(Exception):
    """The experiment could not be carried out, which says nothing about the cluster.

    `run` is the directory with what was recorded, None where nothing was started.
    """

    def __init__(self, text: str, run: Path | None = None) -> None:
        super().__init__(text)
        self.run = run


class ExperimentInterrupted(KeyboardInterrupt):
    """A stop signal ended the experiment: no process is left, `run` holds what was recorded."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run


class NothingBegunError(ExperimentError):
    """The world or the output directory can't be used: no process was started."""


def run_experiment(
    scenario: Scenario,
    *,
    world: str = "local",
    world_settings: Mapping[str, str] | None = None,
    seed: int,
    engine: str | None = None,
    toxiproxy_url: str | None = None,
    out: Path | None = None,
    on_whole: Callable[[], None] | None = None,
) -> Path:
    """Run the experiment; return the run directory.

    A stop signal cleans up and raises ExperimentInterrupted. `engine` None: the scenario's. `out`
    must not exist or be empty; None: runs/<scenario>-<time>-<seed>. `on_whole` is called once
    senders have stopped and every node is back or given up; it must not block. Raises
    ExperimentError, also NothingBegunError.
    """
    if engine is not None:
        cluster = dataclasses.replace(scenario.cluster, engine=engine)
        scenario = dataclasses.replace(scenario, cluster=cluster)
    _check_possible(scenario, world, toxiproxy_url)
    started = datetime.now(UTC)
    run = out or Path("runs") / f"{scenario.name}-{started:%Y%m%dT%H%M%S}-{seed}"
    _make_empty(run)
    try:
        experiment = _Experiment(
            scenario,
            run.resolve(),
            world=world,
            world_settings=world_settings or {},
            seed=seed,
            toxiproxy_url=toxiproxy_url,
            started=started,
            on_whole=on_whole,
        )
    except (LayoutError, ProcessError, WorldSettingsError) as error:  # no free ports, for example
        raise NothingBegunError(str(error)) from error
    try:
        if scenario.cluster.access:
            write_accounts(run.resolve() / ACL_FILE, secrets.token_hex(16))
        # A copy to run the experiment again with; the manifest has the same text.
        (run / "scenario.toml").write_text(scenario.text, encoding="utf-8")
        with laboratory_log(run.resolve()):
            result = experiment.run()
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        experiment.give_up("interrupted")
        raise ExperimentInterrupted(run) from error
    except (*KNOWN_ERRORS, TimeoutError) as error:
        experiment.give_up(f"{type(error).__name__}: {error}")
        raise ExperimentError(f"{type(error).__name__}: {error}", run) from error
    except ExceptionGroup as errors:
        first = first_of(errors)
        experiment.give_up(f"{type(first).__name__}: {first}")
        raise ExperimentError(f"{type(first).__name__}: {first}", run) from errors
    experiment.progress.print_line(
        f"{result.ops} operations, {result.faults} faults and {result.raft} Raft events in {run}"
    )
    return run


@dataclass(slots=True)
class _Parts:
    """The parts that run side by side while the cluster is up."""

    world: World
    history: HistoryWriter
    watch: ClusterWatch
    nemesis: Nemesis
    workload: Workload
    context: WorkContext


class _Experiment:
    def __init__(
        self,
        scenario: Scenario,
        run: Path,
        *,
        world: str,
        world_settings: Mapping[str, str],
        seed: int,
        toxiproxy_url: str | None,
        started: datetime,
        on_whole: Callable[[], None] | None,
    ) -> None:
        self._scenario = scenario
        self._run = run
        self._world = world
        self._seed = seed
        self._toxiproxy_url = toxiproxy_url
        self._started = started
        self._on_whole = on_whole
        self._rng = random.Random(seed)
        spec = WORLDS[world]
        self._world_settings = spec.settings_with(world_settings)
        self._layout = spec.lay_out(scenario, run, self._world_settings)
        self._host = spec.make_host(seed, self._world_settings)
        self._clients_end_s = CLIENTS_END_SECONDS_MAX * (BUSY if self._host.has_real_time else 1)
        self._started_ns = self._host.now_ns()
        self._phases = Phases(lambda: self._host.now_ns() - self._started_ns)
        self._system_name = self._system_version = "none"  # until the world is made
        self._dedupes = False
        self._faults_possible: list[str] = []
        self._queues: list[dict[str, object]] = []
        self._left_behind: list[dict[str, str]] = []
        self._steps: Sequence[FaultStep] = ()
        self._consumer_groups: dict[str, dict[str, object]] = {}
        self.progress = Progress(f"{scenario.name}, seed {seed}")

    def run(self) -> ExportResult:
        """Run all phases. Raises the error of a phase; the caller then calls `give_up`."""
        with LiveTables(sources_of(self._run, self._layout, started_ns=self._started_ns)) as tables:
            if self._host.has_real_time:
                tables.start()
            self._host.run(self._carry_out)
            self.progress.print_line("all processes have stopped; writing tables")
            facts = {**self._facts(), "complete": True}
            return export_run(self._run, tables.finish(), facts)

    async def _carry_out(self) -> None:
        """Run all phases up to the stop of the last process."""
        with self._host.stop_signals():
            slots = slot_names(self._scenario)
            world = self._host.make_world(
                WorldOptions(
                    run=self._run,
                    layout=self._layout,
                    client_slots=slots,
                    toxiproxy_url=self._toxiproxy_url,
                    rng=self._rng,
                    failpoints=self._scenario.cluster.failpoints,
                )
            )
            self._system_name, self._system_version = world.system.name, world.system.version
            self._dedupes = world.system.dedupes
            self._faults_possible = [
                name
                for name, spec in CATALOGUE.items()
                if spec.missing_in(world.system.parts, world.links.effects) is None
            ]
            progress = asyncio.create_task(self.progress.run(), name="progress")
            try:
                await world.start()
                with HistoryWriter(
                    self._run / HISTORY_FILE, started_ns=self._started_ns
                ) as history:
                    await self._with_cluster(world, history)
                self.progress.phase = "stop"
                await world.stop()
            finally:
                progress.cancel()
                await asyncio.shield(world.abort())

    def give_up(self, reason: str) -> None:
        """Write a manifest that says that the run did not end, and why; none where it can't be
        written, which says that it did not end, too."""
        facts = {**self._facts(), "complete": False, "harness_error": reason}
        try:
            if (self._run / "nodes").is_dir():
                cut_trailing_holes(self._run / "nodes")
            write_manifest(self._run, facts, {})
        except OSError as error:
            self.progress.print_line(f"{self._run} gets no run.json: {error}")

    async def _with_cluster(self, world: World, history: HistoryWriter) -> None:
        context = await self._make_context(world, history)
        watch = ClusterWatch(world.system)
        parts = _Parts(
            world=world,
            history=history,
            watch=watch,
            nemesis=Nemesis(world, history, watch, random.Random(self._rng.getrandbits(64))),
            workload=Workload(context, random.Random(self._rng.getrandbits(64))),
            context=context,
        )
        self._consumer_groups = parts.workload.consumer_groups()
        self.progress.attach(world, history, watch, parts.nemesis)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run(), name="watch")
            working = tasks.create_task(parts.workload.run(), name="workload")
            try:
                await self._load(parts)
                await self._heal(parts)
                await self._drain(parts)
                parts.workload.end_readers()
                await await_ended(working, parts.workload, history, seconds=self._clients_end_s)
            except SystemFailedError as error:
                self._leave_behind(world, error)
                working.cancel()
            watching.cancel()
        history.note("phases", self._phases.as_json())

    def _leave_behind(self, world: World, error: SystemFailedError) -> None:
        """Have the run end here where brokers have ended by mistakes; raise `error` elsewhere."""
        ended = ended_by_mistake(world.system, self._run)
        if not ended:
            raise error
        self._left_behind = _places(place for place, _ in ended)
        for place, words in ended:
            self.progress.print_line(f"{place.name} ended by itself: {words}")

    async def _make_context(self, world: World, history: HistoryWriter) -> WorkContext:
        """Create the topics; until then the queues are not known."""
        context = WorkContext(
            scenario=self._scenario,
            world=world,
            history=history,
            queues=(),
            nodes={
                place.address: place.node for place in (*self._layout.brokers, *self._layout.spares)
            },
            signer=access_of(self._layout).signer,
        )
        work = self._scenario.workload
        slot = context.slot(TOOL_SLOT, random.Random(self._rng.getrandbits(64)))
        of_parts = part_topics(self._scenario)
        topics = [*work.topics, *(topic for each in of_parts.values() for topic in each)]
        async with make_tool(context, slot) as tool:
            queues = await make_topics(
                tool,
                list(self._layout.groups),
                topics,
                queues=work.queues,
                deadline_s=asyncio.get_running_loop().time() + START_SECONDS_MAX,
                attributes=work.topic_attributes or None,
            )
        return WorkContext(
            scenario=self._scenario,
            world=world,
            history=history,
            queues=[queue for queue in queues if queue.topic in work.topics],
            nodes=context.nodes,
            part_queues={
                name: [queue for queue in queues if queue.topic in each]
                for name, each in of_parts.items()
            },
            signer=context.signer,
        )

    async def _load(self, parts: _Parts) -> None:
        loop = asyncio.get_running_loop()
        self.progress.phase = "load"
        with self._phases.measured("load"):
            end = loop.time() + self._scenario.load.seconds
            # Faults end within the load, but observing that the last one is healed may take longer.
            possible = frozenset(
                name
                for name, spec in CATALOGUE.items()
                if spec.missing_in(parts.world.system.parts, parts.world.links.effects) is None
            )
            self._steps = self._scenario.steps(seed=self._seed, possible=possible)
            await parts.nemesis.run(self._steps)
            await asyncio.sleep(max(0.0, end - loop.time()))

    async def _heal(self, parts: _Parts) -> None:
        self.progress.phase = "heal"
        loop = asyncio.get_running_loop()
        with self._phases.measured("heal"):
            parts.workload.stop_sending()
            await await_idle(parts.workload, parts.history, seconds=self._clients_end_s)
            self._consumer_groups = parts.workload.consumer_groups()
            deadline_s = loop.time() + self._scenario.load.heal_seconds_max
            behind = await await_caught_up(parts.world, parts.watch, deadline_s=deadline_s)
            self._left_behind = _places(behind)
            if behind:
                self.progress.print_line(
                    f"{', '.join(place.name for place in behind)} did not come back within"
                    f" {self._scenario.load.heal_seconds_max:g} s"
                )
                deadline_s = loop.time() + self._scenario.load.heal_seconds_max
            if self._on_whole is not None:
                self._on_whole()
            work = self._scenario.workload
            await await_settled(
                parts.workload,
                parts.history,
                self._scenario.transactions,
                immunity_ms=1000 * IMMUNITY_BEYOND_S_MAX * (work.immune_share > 0),
                deadline_s=deadline_s,
            )
            parts.workload.end_transactions()

    async def _drain(self, parts: _Parts) -> None:
        self.progress.phase = "drain"
        deadline_s = asyncio.get_running_loop().time() + self._scenario.load.drain_seconds_max
        with self._phases.measured("drain"):
            drained = await drain_all(parts.context, parts.workload, deadline_s=deadline_s)
            system = await read_system_queues(
                parts.context,
                self._run,
                parts.context.slot(TOOL_SLOT, random.Random(self._rng.getrandbits(64))),
            )
        self._queues = [
            {
                "broker_group": item.queue.broker_name,
                "topic": item.queue.topic,
                "queue": item.queue.queue_id,
                "min_offset": item.min_offset,
                "max_offset": item.max_offset,
                "drained": item.drained,
            }
            for item in (*drained, *system)
        ]

    def _replication_facts(self) -> dict[str, object]:
        """Return what rules of masters and slaves need; nothing where masters are elected."""
        if not self._layout.has_masters:
            return {}
        count = self._layout.broker_settings.get("in_sync_replicas", IN_SYNC_REPLICAS)
        return {"flush": self._layout.flush, "in_sync_replicas": count}

    def _facts(self) -> dict[str, object]:
        scenario = self._scenario
        return {
            "system": self._system_name,
            "engine": self._layout.engine,
            **self._replication_facts(),
            "version": self._system_version,
            "world": self._world,
            "world_settings": self._world_settings,
            "faults_possible": self._faults_possible,
            "scenario": {"name": scenario.name, "text": scenario.text},
            "seed": self._seed,
            "started_at": self._started.isoformat(),
            "environment": describe_environment(),
            "phases": self._phases.as_json(),
            "groups": {
                name: [place.node for place in places]
                for name, places in self._layout.groups.items()
            },
            "queues": self._queues,
            "left_behind": self._left_behind,
            "consumer_groups": self._consumer_groups,
            "transactions": {
                "timeout_ms": scenario.transactions.timeout_ms,
                "check_interval_ms": scenario.transactions.check_interval_ms,
                "check_max": scenario.transactions.check_max,
            },
            "dedupe": {"window_ms": scenario.dedupe.window_ms} if self._dedupes else None,
            "limits": scenario.limits and dataclasses.asdict(scenario.limits),
            **part_manifest(scenario, self._steps),
            "routes": {"expire_ms": route_expiry_ms(scenario), "gone_ms": ROUTE_GONE_MS},
        }


def _places(brokers: Iterable[BrokerPlace]) -> list[dict[str, str]]:
    return [{"broker_group": place.group, "node": place.node} for place in brokers]


def _check_possible(scenario: Scenario, world: str, toxiproxy_url: str | None) -> None:
    """Raise NothingBegunError where this installation or this host can't run it."""
    if world not in WORLDS:
        raise NothingBegunError(f"unknown world {world!r}: known are {', '.join(WORLDS)}")
    engine, engines = scenario.cluster.engine, WORLDS[world].engines
    if engine not in engines:
        raise NothingBegunError(
            f"unknown engine {engine!r} of the world {world}: known are {', '.join(engines)}"
        )
    if scenario.cluster.access and not WORLDS[world].has_accounts:
        # Whoever has no right would get in, and the verdict would blame the cluster.
        raise NothingBegunError(f"the world {world} has no accounts: cluster.access can't be true")
    lacking = WORLDS[world].missing()
    if lacking is not None:
        raise NothingBegunError(f"the world {world} can't be had here: {lacking}")
    if toxiproxy_url is not None:
        if not WORLDS[world].has_proxies:
            raise NothingBegunError(f"the world {world} has no proxies, so none in a Toxiproxy")
        _check_url(toxiproxy_url)


def _make_empty(run: Path) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NothingBegunError(f"{run} can't be made: {error.strerror}") from error
    if any(run.iterdir()):
        raise NothingBegunError(f"{run} exists and is not empty")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of brackets, or of a port that is no number
        usable = False
    if not usable:
        raise NothingBegunError(f"{url!r} is no URL of a Toxiproxy, such as http://127.0.0.1:8474")
