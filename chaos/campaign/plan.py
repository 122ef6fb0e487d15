"""The file of a campaign, and the runs that it requests.

Place in the data path: `ledgermq chaos campaign FILE` reads it with `load_campaign`;
`chaos.campaign.campaign` goes through `runs`.

    name = "random-sim"
    worlds = ["sim"]
    engines = []                  # in worlds that have them; none: those of scenarios
    scenarios = ["smoke.toml"]    # relative to this file
    seeds = "1..20"               # both included
    jobs = 2                      # runs at once, in the simulated world

    [settings.rocketmq]           # what `--set` says of a world of `worlds`
    version = "5.5.0"

    [judging]                     # DuckDB judges all
    spark_every = 10              # Spark too: one in so many, 0: none
    spark_failing = true          # and each that fails
    minutes_max = 15              # of one run, after which it is killed and counts as unknown

    [bounds]                      # passing runs keep manifest, verdict and report
    whole_runs_max = 20           # others are left whole, up to so many
    whole_megabytes_max = 10000
    reports_max = 200             # and so many reports of those that are not whole (5 MB each)

    [minimise]
    failures_max = 3              # one of each failing check and system; 0: none
    attempts = 100
    repeats = 3                   # of each attempt; in the simulated world once

Invariants: every key is known and of its type and range, every scenario can be read, every world
can be had here; otherwise CampaignError names it before anything is started. The runs and their
order follow from the file and its scenarios alone.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.experiment.world_catalogue import WORLDS, WorldSettingsError
from chaos.scenario.scenario import Scenario, ScenarioError, load_scenario
from remoting.connections.config_values import (
    check_keys,
    near_matches,
    number,
    range_problems,
    section,
    typed,
)

__all__ = [
    "SIMULATED",
    "BoundsSection",
    "Campaign",
    "CampaignError",
    "Experiment",
    "JudgingSection",
    "MinimiseSection",
    "PlannedRun",
    "load_campaign",
]

SIMULATED: Final = "sim"
"""The world whose runs do not disturb one another, and are the same each time."""

RUNS_MAX: Final = 100_000
_SIZE_MAX: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SEEDS: Final = re.compile(r"(\d{1,10})\.\.(\d{1,10})")


class CampaignError(ValueError):
    """The file is no campaign, or it can't be had here; the text names what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingSection:
    spark_every: int = number(10, 0, RUNS_MAX)
    spark_failing: bool = True
    minutes_max: float = number(15.0, 0.1, 24 * 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsSection:
    whole_runs_max: int = number(20, 0, 10_000)
    whole_megabytes_max: int = number(10_000, 0, 10_000_000)
    reports_max: int = number(200, 0, RUNS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimiseSection:
    failures_max: int = number(3, 0, 1_000)
    attempts: int = number(100, 1, 10_000)
    repeats: int = number(3, 1, 100)


_SECTIONS: Final[Mapping[str, type[Any]]] = {
    "judging": JudgingSection,
    "bounds": BoundsSection,
    "minimise": MinimiseSection,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run of a campaign: enough to begin it, and to begin it again.

    `settings` are the world's, by name.
    """

    world: str
    engine: str
    seed: int
    scenario_file: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The arguments of `ledgermq` that run it."""
        words = ["chaos", "run", str(self.scenario_file), "--world", self.world]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return [*words, "--seed", str(self.seed), "--engine", self.engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of the plan; `number` is its place there."""

    number: int
    world: str
    engine: str
    scenario: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.scenario}-{self.world}-{self.engine}-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A parsed campaign; `text` is the file as it was read, `scenarios` are by name.

    `settings` are by world.
    """

    name: str
    text: str
    worlds: tuple[str, ...]
    engines: tuple[str, ...]
    scenarios: Mapping[str, Scenario]
    seeds: range
    jobs: int = number(2, 1, 64)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    judging: JudgingSection = field(default_factory=JudgingSection)
    bounds: BoundsSection = field(default_factory=BoundsSection)
    minimise: MinimiseSection = field(default_factory=MinimiseSection)

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs. Seeds come last, so that a campaign that is ended early has tried each kind."""
        kinds = [
            (seed, name, engine, world)
            for seed in self.seeds
            for name, scenario in self.scenarios.items()
            for engine in self.engines or (scenario.cluster.engine,)
            for world in self.worlds
            if not self.engines or engine in WORLDS[world].engines
        ]
        return [
            PlannedRun(number=number, world=world, engine=engine, scenario=name, seed=seed)
            for number, (seed, name, engine, world) in enumerate(kinds)
        ]

    def digest(self) -> str:
        """Return the SHA-256 of all that decides which runs there are and what they do."""
        inputs = [*self.worlds, "", *self.engines, "", str(self.seeds)]
        inputs += [
            f"{world} {name}={value}"
            for world, values in self.settings.items()
            for name, value in values.items()
        ]
        inputs += [text for name, each in self.scenarios.items() for text in (name, each.text)]
        return hashlib.sha256("\0".join(inputs).encode()).hexdigest()


def load_campaign(path: Path) -> Campaign:
    """Read a campaign. Raises CampaignError; OSError where a file can't be read."""
    if path.stat().st_size > _SIZE_MAX:
        raise CampaignError(f"{path}: larger than {_SIZE_MAX} bytes, which no campaign is")
    try:
        text = path.read_text(encoding="utf-8")
        return _parse(text, name=path.stem, folder=path.parent)
    except UnicodeDecodeError as error:
        raise CampaignError(f"{path}: not UTF-8 text: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise CampaignError(f"{path}: not TOML: {error}") from error
    except ScenarioError as error:  # it names the scenario's file
        raise CampaignError(str(error)) from error
    except CampaignError as error:
        raise CampaignError(f"{path}: {error}") from error


def _parse(text: str, *, name: str, folder: Path) -> Campaign:
    data = tomllib.loads(text)
    known = ("name", "worlds", "engines", "scenarios", "seeds", "jobs", "settings", *_SECTIONS)
    check_keys("", data, known, CampaignError)
    sections = {
        place: section(kind, place, data.get(place, {}), CampaignError)
        for place, kind in _SECTIONS.items()
    }
    worlds = _names("worlds", data, WORLDS)
    campaign = Campaign(
        name=_typed("name", data.get("name", name), str),
        text=text,
        worlds=worlds,
        engines=_engines(data, worlds),
        scenarios=_scenarios(_names("scenarios", data, None), folder),
        seeds=_seeds(_typed("seeds", data.get("seeds", ""), str)),
        jobs=_typed("jobs", data.get("jobs", 2), int),
        settings=_settings(data.get("settings", {}), worlds),
        **sections,
    )
    problems = range_problems("", campaign)
    for place, values in sections.items():
        problems += range_problems(place, values)
    if problems:
        raise CampaignError("; ".join(problems))
    if not _NAME.fullmatch(campaign.name):
        raise CampaignError(f"name: {campaign.name!r} is not 1..100 letters, digits, '._-'")
    if not campaign.worlds or not campaign.scenarios:
        raise CampaignError("it needs at least one of worlds and one of scenarios")
    for world in campaign.worlds:
        missing = WORLDS[world].missing()
        if missing is not None:
            raise CampaignError(f"the world {world} can't be had here: {missing}")
    _check_own_engines(campaign)
    per_seed = len(campaign.worlds) * len(campaign.scenarios) * max(1, len(campaign.engines))
    if per_seed * len(campaign.seeds) > RUNS_MAX:
        raise CampaignError(f"seeds: more than {RUNS_MAX} runs")
    return campaign


def _check_own_engines(campaign: Campaign) -> None:
    """Raise CampaignError where a world lacks the engine of a scenario, and none are given."""
    for world in campaign.worlds if not campaign.engines else ():
        for name, scenario in campaign.scenarios.items():
            engine, known = scenario.cluster.engine, WORLDS[world].engines
            if engine not in known:
                raise CampaignError(
                    f"engines: the world {world} has no {engine}, the engine of {name}; it has"
                    f" {', '.join(known)}"
                )


def _names(key: str, data: Mapping[str, object], known: typing.Iterable[str] | None) -> Any:
    names = _typed(key, data.get(key, []), tuple[str, ...])
    for name in names:
        if known is not None and name not in known:
            raise CampaignError(f"{key}: unknown {name!r}{near_matches(name, known)}")
    if len(set(names)) != len(names):
        raise CampaignError(f"{key} names one twice")
    return names


def _engines(data: Mapping[str, object], worlds: tuple[str, ...]) -> tuple[str, ...]:
    """Read the engines: each is known to one of the worlds, and each world has one of them."""
    known = list(dict.fromkeys(name for world in worlds for name in WORLDS[world].engines))
    engines: tuple[str, ...] = _names("engines", {"engines": [], **data}, known)
    for world in worlds:
        if engines and not set(engines) & set(WORLDS[world].engines):
            has = ", ".join(WORLDS[world].engines)
            raise CampaignError(f"engines: the world {world} has none of them; it has {has}")
    return engines


def _settings(value: object, worlds: tuple[str, ...]) -> dict[str, dict[str, str]]:
    tables = _typed("settings", value, dict)
    check_keys("settings", tables, worlds, CampaignError)
    settings = {}
    for world, table in tables.items():
        place = f"settings.{world}"
        settings[world] = {
            name: _typed(f"{place}.{name}", text, str)
            for name, text in _typed(place, table, dict).items()
        }
        try:
            WORLDS[world].settings_with(settings[world])
        except WorldSettingsError as error:
            raise CampaignError(f"{place}: {error}") from error
    return settings


def _scenarios(files: tuple[str, ...], folder: Path) -> dict[str, Scenario]:
    scenarios: dict[str, Scenario] = {}
    for file in files:
        path = folder / file
        if not path.is_file():
            raise CampaignError(f"scenarios: there is no file {path}")
        scenario = load_scenario(path)
        if scenario.name in scenarios:
            raise CampaignError(f"scenarios: two of them are named {scenario.name}")
        scenarios[scenario.name] = scenario
    return scenarios


def _seeds(text: str) -> range:
    match = _SEEDS.fullmatch(text)
    if match is None:
        raise CampaignError(f"seeds: {text!r} is not A..B, such as 1..20")
    first, last = int(match[1]), int(match[2])
    if first > last:
        raise CampaignError(f"seeds: {text} is empty")
    return range(first, last + 1)


def _typed(where: str, value: object, kind: Any) -> Any:
    return typed(where, value, kind, CampaignError)
