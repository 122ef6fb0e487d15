"""A failing run minimised: from its directory to the smallest scenario that still fails.

Place in the data path: `ledgermq chaos minimise RUN`, and `chaos.campaign.campaign` for failures
of a campaign; `chaos.campaign.shrink` decides what is tried, `Runner` runs it. It reads run.json
and verdict.json alone, so that a run that was cut to those is as good. What it leaves:

    OUT/scenario.toml     the smallest scenario that still fails
    OUT/run/              the last run of it that failed, whole
    OUT/minimised.json    every step with its probability, the command that repeats it, the time

Faults that the seed drew ([schedule], [[sequences]], [[phases]]) are first written out as what they
were, faults with fixed times, so that single ones can be taken away.

Invariants: at most three runs are on the disk at once; a run that did not end, or that could not be
judged, did not fail; an interrupted search leaves what it had found until then.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from chaos.campaign.outcome import failed_checks, read_outcome
from chaos.campaign.plan import SIMULATED, Experiment
from chaos.campaign.shrink import Search, shrink
from chaos.cluster.engines import name_of_engine
from chaos.scenario.scenario import FaultStep, Scenario, ScenarioError, parse_scenario
from chaos.scenario.scenario_text import scenario_text

__all__ = ["MinimiseError", "Minimised", "Runner", "minimise_run"]

MINIMISED_FILE: Final = "minimised.json"
SCENARIO_FILE: Final = "scenario.toml"


class MinimiseError(Exception):
    """The run can't be minimised; the text says why."""


class Runner(Protocol):
    """Runner and judge of experiments; see `chaos.campaign.commands`."""

    async def experiment(self, of: Experiment, out: Path) -> str:
        """Run and judge one, leaving its directory `out`; return what went wrong, or nothing."""

    async def confirm(self, out: Path) -> str:
        """Have a second engine judge the run, too; return what went wrong, or nothing."""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate of the search, and how many of its runs failed."""

    what: str
    failed: int
    ran: int
    accepted: bool


class Minimised(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="minimised"):
    """Result of the search for one run.

    `failed` of `ran`: the probability of what is left. `is_complete`: nothing more can be taken
    away. `command` is empty where the run could not be repeated at all.
    """

    run: str
    check: str
    repeated: bool
    is_complete: bool
    attempts: int
    failed: int
    ran: int
    faults_before: int
    faults: list[str]
    load_s_before: float
    load_s: float
    steps: list[StepRow]
    command: str
    took_s: float


async def minimise_run(
    run: Path,
    out: Path,
    *,
    runner: Runner,
    attempts: int,
    repeats: int,
    check: str | None,
    report: Callable[[str], None],
) -> Minimised:
    """Minimise a run that failed. `check` None: its first failing check that has a promise.

    Raises MinimiseError; OSError where `out` can't be written.
    """
    began = time.monotonic()
    whole, of = _source(run, out)
    chosen = _chosen(run, check)
    _make_empty(out)
    trials = _Trials(out, of, runner, chosen, report)
    try:
        search = await shrink(
            whole,
            trials.attempt,
            repeats=1 if of.world == SIMULATED else repeats,
            attempts_max=attempts,
            on_accepted=trials.accept,
        )
    finally:
        trials.clean_up()
    result = _result_of(run.name, chosen, whole, search, of, took_s=time.monotonic() - began)
    _write(out / MINIMISED_FILE, result)
    return result


def _make_empty(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise MinimiseError(f"{out} is not empty")


def _write(path: Path, result: Minimised) -> None:
    text = json.dumps(msgspec.to_builtins(result), indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


class _Trials:
    """Runs candidates one after the other in `out`; of the accepted one a failed run stays."""

    def __init__(
        self,
        out: Path,
        of: Experiment,
        runner: Runner,
        check: str,
        report: Callable[[str], None],
    ) -> None:
        self._of = of
        self._runner = runner
        self._check = check
        self._report = report
        self._count = 0
        self._run = out / "run"
        self._trial = out / "trial"
        self._failed = out / "failed"
        self._candidate = out / "candidate.toml"

    async def attempt(self, what: str, scenario: Scenario) -> bool:
        """Run a candidate once; return whether the same check failed. `what` describes it."""
        self._count += 1
        self._candidate.write_text(scenario_text(scenario), encoding="utf-8")
        of = dataclasses.replace(self._of, scenario_file=self._candidate)
        began = time.monotonic()
        trouble = await self._runner.experiment(of, self._trial)
        outcome = read_outcome(
            self._trial,
            name=self._trial.name,
            scenario=scenario.name,
            of=of,
            trouble=trouble,
            took_s=time.monotonic() - began,
        )
        has_failed = any(failed.id == self._check for failed in outcome.failed)
        result = "fails" if has_failed else "does not fail"
        why = f" ({outcome.reason})" if outcome.verdict == "unknown" else ""
        self._report(f"attempt {self._count}, {what}: {self._check} {result}{why}")
        if has_failed:
            _remove(self._failed)
            self._trial.rename(self._failed)
        _remove(self._trial)
        return has_failed

    def accept(self, scenario: Scenario) -> None:
        """Have the scenario, and its last run that failed, be what is left."""
        _remove(self._run)
        self._failed.rename(self._run)
        self._of.scenario_file.write_text(scenario_text(scenario), encoding="utf-8")

    def clean_up(self) -> None:
        _remove(self._trial)
        _remove(self._failed)
        self._candidate.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _source(run: Path, out: Path) -> tuple[Scenario, Experiment]:
    """Return the scenario of a run, all faults at fixed times, and how it was run.

    Raises MinimiseError.
    """
    manifest = _json(run / "run.json")
    recorded = manifest.get("scenario")
    text = recorded.get("text") if isinstance(recorded, dict) else None
    name, world, engine, seed = (
        recorded.get("name") if isinstance(recorded, dict) else None,
        manifest.get("world"),
        _engine(manifest),
        manifest.get("seed"),
    )
    if not (
        isinstance(text, str)
        and isinstance(name, str)
        and isinstance(world, str)
        and isinstance(engine, str)
        and isinstance(seed, int)
    ):
        raise MinimiseError(f"{run}: run.json lacks scenario, world, engine or seed")
    try:
        scenario = parse_scenario(text, name=name)
    except ScenarioError as error:
        raise MinimiseError(f"{run}: the scenario in run.json: {error}") from error
    scenario = _with_fixed_faults(run, scenario, seed, manifest.get("faults_possible"))
    return scenario, Experiment(
        world=world,
        engine=engine,
        seed=seed,
        scenario_file=out / SCENARIO_FILE,
        settings=_settings(manifest),
    )


def _engine(manifest: dict[str, Any]) -> object:
    """Return the engine by the name that the command line takes: run.json tells of one whose
    answers wait for an fsync by another key."""
    engine = manifest.get("engine")
    if not isinstance(engine, str):
        return None
    return name_of_engine(engine, manifest.get("flush"))


def _settings(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the world's settings; older runs record none."""
    settings = manifest.get("world_settings")
    return (
        {str(name): str(value) for name, value in settings.items()}
        if isinstance(settings, dict)
        else {}
    )


def _with_fixed_faults(run: Path, scenario: Scenario, seed: int, possible: object) -> Scenario:
    """Return the scenario with each fault that its seed drew as one with a fixed time.

    `possible`: what run.json says that the world could have had; a schedule that names no faults
    has drawn from these. Raises MinimiseError.
    """
    if scenario.schedule is None and not scenario.sequences and not scenario.phases:
        return scenario
    if not isinstance(possible, list):
        raise MinimiseError(f"{run}: run.json lacks faults_possible, which its faults are drawn by")
    return dataclasses.replace(
        scenario,
        faults=scenario.steps(seed=seed, possible=frozenset(map(str, possible))),
        schedule=None,
        sequences=(),
        phases=(),
    )


def _chosen(run: Path, check: str | None) -> str:
    """Return the check that has to fail. Raises MinimiseError."""
    failed = failed_checks(_json(run / "verdict.json"))
    if not failed:
        raise MinimiseError(f"{run}: its verdict names no check that fails; `ledgermq verify` it")
    names = [each.id for each in failed]
    if check is not None and check not in names:
        raise MinimiseError(f"{run}: {check} did not fail; failed are {', '.join(names)}")
    return check or min(failed, key=lambda each: each.promise is None).id


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MinimiseError(f"{path} can't be read: {error}") from error
    return value if isinstance(value, dict) else {}


def _result_of(
    name: str, check: str, whole: Scenario, search: Search, of: Experiment, *, took_s: float
) -> Minimised:
    smallest = search.smallest
    left = whole if smallest is None else smallest
    return Minimised(
        run=name,
        check=check,
        repeated=smallest is not None,
        is_complete=search.is_complete,
        attempts=search.attempts,
        failed=search.tally.failed,
        ran=search.tally.ran,
        faults_before=len(whole.faults),
        faults=[_fault_words(step) for step in left.faults],
        load_s_before=whole.load.seconds,
        load_s=left.load.seconds,
        steps=[
            StepRow(
                what=step.what,
                failed=step.tally.failed,
                ran=step.tally.ran,
                accepted=step.accepted,
            )
            for step in search.steps
        ],
        command="" if smallest is None else shlex.join(["ledgermq", *of.words]),
        took_s=round(took_s, 1),
    )


def _fault_words(step: FaultStep) -> str:
    return f"{step.name} at {step.at_s:g} s for {step.duration_s:g} s"
