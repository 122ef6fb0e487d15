"""A campaign: every run of its plan, judged, reported, and cut to what shall stay.

Place in the data path: `ledgermq chaos campaign` calls `run_campaign` with a Runner. It leaves:

    FOLDER/campaign.toml      the file as it was read
    FOLDER/scenarios/         the scenarios as they were read
    FOLDER/progress.jsonl     what is done (`chaos.campaign.progress`)
    FOLDER/runs/NAME/         the run directories, as far as they stay (`chaos.campaign.retention`)
    FOLDER/minimised/NAME/    what was made of failures (`chaos.campaign.minimise`)
    FOLDER/index.json         all of it in one value (`chaos.campaign.summary`), also as junit.xml

Runs of real time come first, one at a time, so that none disturbs another; those of the simulated
world run side by side; then failures are minimised, one of each failing check and system.

Invariants: a run that is not in the progress is begun anew, whatever lies in its folder; a run that
is in it is never run again; the verdict of the campaign is the worst of its runs.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from chaos.campaign.junit import junit_xml
from chaos.campaign.minimise import MinimiseError, Runner, minimise_run
from chaos.campaign.outcome import RunOutcome, read_outcome
from chaos.campaign.plan import SIMULATED, Campaign, Experiment, PlannedRun
from chaos.campaign.progress import Progress
from chaos.campaign.retention import retained
from chaos.campaign.summary import summary

__all__ = ["INDEX_FILE", "CampaignOptions", "run_campaign"]

INDEX_FILE: Final = "index.json"
PUBLISH_S: Final = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    """Options of the command line beyond the file. `sources`: a digest of the program's text.

    `report` is called with progress, by line; `publish` with the folder, whenever its index is new.
    """

    folder: Path
    sources: str
    jobs: int | None
    with_spark: bool
    with_minimise: bool
    report: Callable[[str], None]
    publish: Callable[[Path], object]


async def run_campaign(campaign: Campaign, options: CampaignOptions, runner: Runner) -> str:
    """Run what is left of a campaign; return its verdict.

    Raises ProgressError where the folder is another campaign's; OSError where it can't be written.
    Cancelled, it leaves what is done.
    """
    work = _Work(campaign, options, runner)
    try:
        await work.run_all()
    finally:
        work.publish()
    return str(work.summary()["verdict"])


class _Work:
    def __init__(self, campaign: Campaign, options: CampaignOptions, runner: Runner) -> None:
        self._campaign = campaign
        self._options = options
        self._runner = runner
        self._folder = options.folder
        self._progress = Progress(self._folder, plan=campaign.digest(), sources=options.sources)
        self._plan = campaign.runs
        self._published_s = time.monotonic()

    async def run_all(self) -> None:
        """Run what is not done yet, and minimise. Raises OSError."""
        self._write_inputs()
        done = self._progress.runs
        left = [run for run in self._plan if run.name not in done]
        if done:
            self._options.report(f"{len(done)} of {len(self._plan)} runs were done before")
        real = [run for run in left if run.world != SIMULATED]
        simulated = [run for run in left if run.world == SIMULATED]
        jobs = self._options.jobs or self._campaign.jobs
        await _side_by_side(real, self._run, 1)
        await _side_by_side(simulated, self._run, jobs)
        if self._options.with_minimise:
            failures = self._to_minimise()
            self.publish()
            real_ones = [each for each in failures if each.world != SIMULATED]
            others = [each for each in failures if each.world == SIMULATED]
            await _side_by_side(real_ones, self._minimise, 1)
            await _side_by_side(others, self._minimise, jobs)

    def summary(self) -> dict[str, Any]:
        runs = [self._progress.runs[r.name] for r in self._plan if r.name in self._progress.runs]
        return summary(
            self._campaign.name,
            runs,
            self._progress.minimised,
            planned=len(self._plan),
            engines_requested=self._judging_words(),
        )

    def publish(self) -> None:
        """Write index.json and junit.xml anew. Raises OSError."""
        index = self.summary()
        _replace(self._folder / INDEX_FILE, msgspec.json.format(msgspec.json.encode(index)))
        runs = [self._progress.runs[r.name] for r in self._plan if r.name in self._progress.runs]
        _replace(self._folder / "junit.xml", junit_xml(self._campaign.name, runs).encode())
        self._options.publish(self._folder)
        self._published_s = time.monotonic()

    async def _run(self, run: PlannedRun) -> None:
        out = self._folder / "runs" / run.name
        if out.exists():  # it was cut off
            shutil.rmtree(out)
        out.parent.mkdir(exist_ok=True)
        of = Experiment(
            world=run.world,
            engine=run.engine,
            seed=run.seed,
            scenario_file=self._scenario_file(run.scenario),
            settings=self._campaign.settings.get(run.world, {}),
        )
        began = time.monotonic()
        trouble = await self._runner.experiment(of, out)

        def outcome(trouble: str) -> RunOutcome:
            return read_outcome(
                out,
                name=run.name,
                scenario=run.scenario,
                of=of,
                trouble=trouble,
                took_s=time.monotonic() - began,
            )

        found = outcome(trouble)
        if self._is_for_spark(run, found):
            trouble = await self._runner.confirm(out)
            found = outcome(trouble)
            if trouble and found.verdict == "unknown":
                found = msgspec.structs.replace(found, reason=f"Spark did not judge it: {trouble}")
        before = self._progress.runs.values()
        found = retained(out, found, before=before, bounds=self._campaign.bounds)
        self._progress.add(found)
        self._report_outcome(found)
        if time.monotonic() - self._published_s >= PUBLISH_S:
            self.publish()

    def _is_for_spark(self, run: PlannedRun, found: RunOutcome) -> bool:
        """A run without a verdict has nothing to confirm."""
        judging = self._campaign.judging
        if not self._options.with_spark or not found.engines:
            return False
        if found.verdict == "fail":
            return judging.spark_failing
        return judging.spark_every > 0 and run.number % judging.spark_every == 0

    async def _minimise(self, outcome: RunOutcome) -> None:
        out = self._folder / "minimised" / outcome.run
        if out.exists():  # it was cut off
            shutil.rmtree(out)
        try:
            found = await minimise_run(
                self._folder / "runs" / outcome.run,
                out,
                runner=self._runner,
                attempts=self._campaign.minimise.attempts,
                repeats=self._campaign.minimise.repeats,
                check=None,
                report=lambda text: self._options.report(f"minimising {outcome.run}: {text}"),
            )
        except MinimiseError as error:
            self._options.report(f"{outcome.run} can't be minimised: {error}")
            return
        self._progress.add(found)

    def _to_minimise(self) -> list[RunOutcome]:
        """Return the first failure of each failing check and system that is not minimised yet."""
        firsts: dict[tuple[str, str], RunOutcome] = {}
        for run in self._plan:
            outcome = self._progress.runs[run.name]
            check = outcome.first_failed
            if check is not None:
                firsts.setdefault((check.id, outcome.place), outcome)
        chosen = list(firsts.values())[: self._campaign.minimise.failures_max]
        return [outcome for outcome in chosen if outcome.run not in self._progress.minimised]

    def _report_outcome(self, found: RunOutcome) -> None:
        failed = " ".join(check.id for check in found.failed)
        why = failed or (found.reason if found.verdict == "unknown" else "")
        self._options.report(
            f"{len(self._progress.runs)} of {len(self._plan)}: {found.run} {found.verdict}"
            f"{f' ({why})' if why else ''}, {found.took_s:.0f} s"
        )

    def _judging_words(self) -> str:
        judging = self._campaign.judging
        if not self._options.with_spark:
            return "DuckDB"
        parts = ["each that failed"] if judging.spark_failing else []
        parts += [f"one in {judging.spark_every}"] if judging.spark_every else []
        return f"DuckDB; {' and '.join(parts)} by Spark too" if parts else "DuckDB"

    def _scenario_file(self, name: str) -> Path:
        return self._folder / "scenarios" / f"{name}.toml"

    def _write_inputs(self) -> None:
        (self._folder / "scenarios").mkdir(exist_ok=True)
        for name, scenario in self._campaign.scenarios.items():
            _replace(self._scenario_file(name), scenario.text.encode())
        _replace(self._folder / "campaign.toml", self._campaign.text.encode())


async def _side_by_side(
    items: Sequence[T], work: Callable[[T], Awaitable[None]], jobs: int
) -> None:
    """Do the work for each item, in this order, so many at once."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(jobs, len(items))):
            tasks.create_task(worker())


def _replace(path: Path, text: bytes) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    draft.write_bytes(text)
    draft.replace(path)
