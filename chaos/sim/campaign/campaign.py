"""Run many seeds over several processes, replay one, and shrink the schedule of a failing one.

Place in the data path: the command line calls `run_campaign`, `replay` and `shrink_failure`;
`command` prints what they return. A seed's outcome depends on nothing but the seed, the number of
nodes, its kind and the code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess

from chaos.cluster.parent_death import end_with_parent
from chaos.cluster.stop_signals import StopSignals
from chaos.sim.campaign.record import SeedRecord
from chaos.sim.campaign.seeds import (
    KINDS,
    Run,
    calmable_of,
    kind_of_seed,
    make_run,
    node_count_of_seed,
)
from chaos.sim.campaign.shrink import RUNS_MAX, shrink
from chaos.sim.cores.core_fixture import Parts
from chaos.sim.machine.violation import Violation
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.schedule import Schedule
from raft.log.log_format import CorruptLogError

__all__ = [
    "CampaignResult",
    "Replay",
    "SeedFailure",
    "replay",
    "run_campaign",
    "run_schedule",
    "run_seed",
    "shrink_failure",
]

_SEEDS_PER_TASK = 10
_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    CorruptLogError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFailure:
    """A seed that broke a rule. `nodes` and `kind_option` are the caller's choices, or None."""

    seed: int
    nodes: int | None
    node_count: int
    rule: str
    detail: str
    kind: str = "core"
    kind_option: str | None = None

    @property
    def command(self) -> str:
        """The command that replays the seed."""
        nodes = "" if self.nodes is None else f" --nodes {self.nodes}"
        kind = "" if self.kind_option is None else f" --kind {self.kind_option}"
        return f"ledgermq sim --replay {self.seed}{nodes}{kind}"

    def __str__(self) -> str:
        return (
            f"SEED={self.seed} ({self.kind}, {self.node_count} nodes) {self.rule}: {self.detail}\n"
            f"  replay: {self.command}"
        )


@dataclass(slots=True, kw_only=True)
class CampaignResult:
    kinds: tuple[str, ...] = KINDS
    seeds_run: int = 0
    failures: list[SeedFailure] = field(default_factory=list)
    coverage: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of all processes together, without their start."""

    @property
    def passed(self) -> bool:
        return self.seeds_run > 0 and not self.failures

    @property
    def virtual_s(self) -> float:
        return self.coverage.get("virtual_ms", 0) / 1000

    @property
    def times_real_time(self) -> float:
        """Virtual seconds per CPU second of one core."""
        return self.virtual_s / max(self.cpu_s, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One run with its full trace."""

    failure: SeedFailure | None
    options: list[str]
    schedule: Schedule
    trace: list[str]
    digest: str
    coverage: dict[str, int]


def run_seed(
    seed: int, nodes: int | None, *, parts: Parts | None = None, kind: str | None = None
) -> tuple[SeedFailure | None, dict[str, int]]:
    """Run one seed without a trace; return its failure, if any, and its counters."""
    run = make_run(seed, nodes, kind=kind, parts=parts)
    failure = _outcome(run, seed, nodes, kind)
    return failure, run.coverage.counts


def replay(
    seed: int, nodes: int | None, *, parts: Parts | None = None, kind: str | None = None
) -> Replay:
    """Run the seed again with a trace of every step."""
    run = make_run(seed, nodes, kind=kind, parts=parts, traced=True)
    return _replay_of(run, _outcome(run, seed, nodes, kind))


def run_schedule(schedule: Schedule, *, parts: Parts | None = None) -> Replay:
    """Run a seed with the faults of a schedule instead of its own."""
    seed, nodes, kind = schedule.seed, schedule.node_count, schedule.kind
    run = make_run(seed, nodes, kind=kind, parts=parts, schedule=schedule, traced=True)
    return _replay_of(run, _outcome(run, seed, nodes, kind))


def shrink_failure(
    failure: SeedFailure, *, parts: Parts | None = None, runs_max: int = RUNS_MAX
) -> Schedule:
    """Return the fewest faults of the seed that break the same rule."""
    seed, nodes, kind = failure.seed, failure.node_count, failure.kind
    whole = make_run(seed, nodes, kind=kind, parts=parts).schedule

    def fails(schedule: Schedule) -> bool:
        run = make_run(seed, nodes, kind=kind, parts=parts, schedule=schedule)
        again = _outcome(run, seed, nodes, kind)
        return again is not None and again.rule == failure.rule

    return shrink(whole, fails, calmable=calmable_of(kind), runs_max=runs_max)


def run_campaign(
    seeds: Sequence[int],
    nodes: int | None = None,
    jobs: int = 2,
    progress: Callable[[CampaignResult], None] | None = None,
    *,
    kind: str | None = None,
    record: SeedRecord | None = None,
) -> CampaignResult:
    """Run every seed of `seeds` over `jobs` processes; `progress` is called with the result so far.

    `record` is given those that passed, a few at a time; where one of such a batch failed, the
    others are not recorded either. Raises OSError where it can't be written.
    """
    started = time.monotonic()
    total = Coverage()
    result = CampaignResult(
        coverage=total.counts, kinds=tuple({kind_of_seed(seed, kind): None for seed in seeds})
    )
    for failures, counts, done, cpu_s in _results(seeds, nodes, jobs, kind):
        result.seeds_run += len(done)
        result.failures += failures
        if record is not None and not failures:
            record.add(done, counts, cpu_s)
        total.add(counts)
        result.cpu_s += cpu_s
        result.elapsed_s = time.monotonic() - started
        if progress is not None:
            progress(result)
    result.failures.sort(key=lambda failure: failure.seed)
    return result


_TaskResult = tuple[list[SeedFailure], dict[str, int], Sequence[int], float]


def _results(
    seeds: Sequence[int], nodes: int | None, jobs: int, kind: str | None
) -> Iterator[_TaskResult]:
    tasks = [
        seeds[start : start + _SEEDS_PER_TASK] for start in range(0, len(seeds), _SEEDS_PER_TASK)
    ]
    if jobs <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield _run_task(task, nodes, kind)
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        max_workers=jobs, mp_context=context, initializer=_begin_worker, initargs=(os.getpid(),)
    ) as pool:
        workers: set[BaseProcess] = set()
        finished = False
        try:
            # A worker whose start is torn in two would print a traceback of its own.
            with StopSignals() as stopped:
                futures = [pool.submit(_run_task, task, nodes, kind) for task in tasks]
                workers = set(multiprocessing.active_children()) - others
            stopped.check()
            for future in as_completed(futures):
                yield future.result()
            finished = True
        finally:
            if not finished:  # nobody waits for the seeds under way
                for worker in workers:
                    worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(parent: int) -> None:
    """Set a worker up: it ends with its parent, even a killed one, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)


def _run_task(seeds: Sequence[int], nodes: int | None, kind: str | None) -> _TaskResult:
    failures = []
    total = Coverage()
    began = time.process_time()
    for seed in seeds:
        failure, counts = run_seed(seed, nodes, kind=kind)
        total.add(counts)
        if failure is not None:
            failures.append(failure)
    return failures, total.counts, seeds, time.process_time() - began


def _replay_of(run: Run, failure: SeedFailure | None) -> Replay:
    return Replay(
        failure=failure,
        options=run.describe(),
        schedule=run.schedule,
        trace=run.trace.lines,
        digest=run.trace.digest(),
        coverage=run.coverage.counts,
    )


def _outcome(run: Run, seed: int, nodes: int | None, kind: str | None) -> SeedFailure | None:
    try:
        run.run()
    except Violation as violation:
        rule, detail = violation.rule, violation.detail
    except _BROKEN as error:  # whatever broke is the finding of this seed
        frame = traceback.extract_tb(error.__traceback__)[-1]
        rule = "exception"
        detail = f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"
    else:
        return None
    found_kind = kind_of_seed(seed, kind)
    return SeedFailure(
        seed=seed,
        nodes=nodes,
        node_count=node_count_of_seed(seed, found_kind, nodes),
        rule=rule,
        detail=detail,
        kind=found_kind,
        kind_option=kind,
    )
