"""Many seeds over several processes, and the replay of one.

Place in the data path: the command line calls `run_campaign` and `replay`; `command` prints what
they return. A seed's outcome depends on nothing but the seed, the number of nodes and the code.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from chaos.sim.cluster import SimCluster
from chaos.sim.coverage import Coverage
from chaos.sim.options import draw_options, nodes_of_seed
from chaos.sim.violation import Violation
from chaos.sim.world import Parts
from raft.log_format import CorruptLogError

__all__ = ["CampaignResult", "Replay", "SeedFailure", "replay", "run_campaign", "run_seed"]

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
    """A seed that broke a rule. `nodes` is what was asked for: None alternates 3 and 5."""

    seed: int
    nodes: int | None
    node_count: int
    rule: str
    detail: str

    @property
    def command(self) -> str:
        """The one command that replays it."""
        nodes = "" if self.nodes is None else f" --nodes {self.nodes}"
        return f"ledgermq sim --replay {self.seed}{nodes}"

    def __str__(self) -> str:
        return (
            f"SEED={self.seed} ({self.node_count} nodes) {self.rule}: {self.detail}\n"
            f"  replay: {self.command}"
        )


@dataclass(slots=True, kw_only=True)
class CampaignResult:
    seeds_run: int = 0
    failures: list[SeedFailure] = field(default_factory=list)
    coverage: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def passed(self) -> bool:
        return self.seeds_run > 0 and not self.failures

    @property
    def times_real_time(self) -> float:
        """Virtual over elapsed time, over all processes."""
        return self.coverage.get("virtual_ms", 0) / 1000 / max(self.elapsed_s, 1e-9)

    def zero_counters(self) -> list[str]:
        """What this campaign never came upon."""
        return [name for name, count in self.coverage.items() if not count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One seed with its whole course."""

    failure: SeedFailure | None
    options: list[str]
    trace: list[str]
    digest: str
    coverage: dict[str, int]


def run_seed(
    seed: int, nodes: int | None, *, parts: Parts | None = None
) -> tuple[SeedFailure | None, dict[str, int]]:
    """One seed without a trace: its failure, if any, and its counters."""
    cluster = SimCluster(draw_options(seed, nodes), parts=parts, traced=False)
    failure = _run(cluster, seed, nodes)
    return failure, cluster.coverage.counts


def replay(seed: int, nodes: int | None, *, parts: Parts | None = None) -> Replay:
    """The same seed again, told step by step."""
    options = draw_options(seed, nodes)
    cluster = SimCluster(options, parts=parts, traced=True)
    failure = _run(cluster, seed, nodes)
    return Replay(
        failure=failure,
        options=options.describe(),
        trace=cluster.trace.lines,
        digest=cluster.trace.digest(),
        coverage=cluster.coverage.counts,
    )


def run_campaign(
    seeds: range,
    nodes: int | None = None,
    jobs: int = 2,
    progress: Callable[[CampaignResult], None] | None = None,
) -> CampaignResult:
    """Every seed of `seeds`, over `jobs` processes; `progress` hears what is done so far."""
    started = time.monotonic()
    total = Coverage()
    result = CampaignResult(coverage=total.counts)
    for failures, counts, count in _results(seeds, nodes, jobs):
        result.seeds_run += count
        result.failures += failures
        total.add(counts)
        result.elapsed_s = time.monotonic() - started
        if progress is not None:
            progress(result)
    result.failures.sort(key=lambda failure: failure.seed)
    return result


_TaskResult = tuple[list[SeedFailure], dict[str, int], int]


def _results(seeds: range, nodes: int | None, jobs: int) -> Iterator[_TaskResult]:
    tasks = [
        seeds[start : start + _SEEDS_PER_TASK] for start in range(0, len(seeds), _SEEDS_PER_TASK)
    ]
    if jobs <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield _run_task(task, nodes)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        futures = [pool.submit(_run_task, task, nodes) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run_task(seeds: Sequence[int], nodes: int | None) -> _TaskResult:
    failures = []
    total = Coverage()
    for seed in seeds:
        failure, counts = run_seed(seed, nodes)
        total.add(counts)
        if failure is not None:
            failures.append(failure)
    return failures, total.counts, len(seeds)


def _run(cluster: SimCluster, seed: int, nodes: int | None) -> SeedFailure | None:
    try:
        cluster.run()
    except Violation as violation:
        rule, detail = violation.rule, violation.detail
    except _BROKEN as error:  # whatever broke is the finding of this seed
        frame = traceback.extract_tb(error.__traceback__)[-1]
        rule = "exception"
        detail = f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"
    else:
        return None
    return SeedFailure(
        seed=seed, nodes=nodes, node_count=nodes_of_seed(seed, nodes), rule=rule, detail=detail
    )
