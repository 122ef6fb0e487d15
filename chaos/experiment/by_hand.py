"""Faults by hand: `ledgermq chaos inject`, `heal` and `status` on a cluster that is up.

Place in the data path: beside `chaos.experiment.nemesis_runner`, with the same faults and the same
probes, for the cluster of a directory (`ledgermq cluster up`) instead of an experiment's.

A fault is held by a process of its own, since only who injected it can heal it (it may go on by
itself, like flapping, and remembers what stood there before). `inject` starts the holder and waits
until the fault was seen, or not; `heal` sends it SIGTERM and waits until it was seen to be healed;
`status` reads what the holders wrote.

    DIR/faults/<fault>.json        what is known of it
    DIR/faults/pids, output        of the holders

Invariants: whatever ends a holder but SIGKILL, it heals first; a file that says "active" whose
holder is gone is shown as abandoned, never as healed; brokers that a heal restarts outlive it.

Source: toxiproxy-cli and chaosd, which do it like that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.cluster.cluster import FAILPOINTS, ClusterError, load_layout
from chaos.cluster.held_faults import FAULTS_DIRECTORY, end_faults
from chaos.cluster.layout import ClusterLayout
from chaos.cluster.members import traces
from chaos.cluster.processes import ProcessTable, ledgermq_argv
from chaos.cluster.stop_signals import heeded_stop_signals
from chaos.links.none import NoLinks
from chaos.nemesis.base import (
    FAULT_ERRORS,
    Fault,
    FaultContext,
    FaultSpec,
    Observation,
    Parameter,
)
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.fault_tables import fault_parameters
from chaos.scenario.ranges import with_matches
from chaos.scenario.values import ScenarioError
from chaos.systems.ledgermq import LedgermqSystem
from chaos.systems.watch import ClusterWatch
from chaos.worlds.world import World

__all__ = ["FaultUsageError", "HeldFault", "heal", "hold", "inject", "parse_words", "statuses"]

EFFECT_TIMEOUT_S: Final = 5.0
HEALED_TIMEOUT_S: Final = 40.0
LEADER_TIMEOUT_S: Final = 6.0
PROBE_PAUSE_S: Final = 0.05
INJECT_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.05
_ABANDONED: Final = "its holder was killed, who alone could heal it: see `ledgermq cluster status`"
ENDS: Final = frozenset({"healed", "not healed", "refused"})


class FaultUsageError(ValueError):
    """The words name no fault, or a parameter that it does not have."""


@dataclass(slots=True, kw_only=True)
class HeldFault:
    """Record of a fault that was injected by hand.

    `state`: starting, active, healing, healed, not healed, refused, or abandoned. `effect` as in
    the run format: taken, not_taken, unknown.
    """

    number: int
    fault: str
    group: str
    params: dict[str, Parameter]
    state: str = "starting"
    targets: list[str] = dataclasses.field(default_factory=list)
    effect: str = "unknown"
    evidence: str = ""
    injected_at: float = 0.0

    @property
    def name(self) -> str:
        return f"fault-{self.number}"

    def describe(self) -> str:
        """Return one line for a person."""
        text = f"{self.name} {self.fault} on {', '.join(self.targets) or self.group}: {self.state}"
        if self.state not in {"starting", "refused"}:
            text += f", effect {self.effect}"
        return f"{text}; {self.evidence}" if self.evidence else text


def parse_words(name: str, words: list[str]) -> dict[str, Parameter]:
    """Return the fault's parameters from words key=value. Raises FaultUsageError."""
    if name not in CATALOGUE:
        raise FaultUsageError(f"there is no fault {with_matches(name, CATALOGUE)}")
    known = CATALOGUE[name].parameters
    given: dict[str, object] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator:
            raise FaultUsageError(f"{word!r} is not of the form key=value")
        given[key] = _value(key, text, known.get(key))
    try:
        return fault_parameters(name, given)
    except ScenarioError as error:
        raise FaultUsageError(f"{name}: {error}") from error


def inject(
    directory: Path, name: str, params: Mapping[str, Parameter], *, group: str | None
) -> HeldFault:
    """Inject a fault and return what its probe saw; it stays until `heal`.

    Raises ClusterError, FaultUsageError, ProcessError, OSError.
    """
    layout = load_layout(directory)
    chosen = group or next(iter(layout.groups))
    if chosen not in layout.groups:
        raise FaultUsageError(f"there is no group {chosen}; there is {', '.join(layout.groups)}")
    lacking = CATALOGUE[name].missing_in(_system(directory, layout).parts, NoLinks.effects)
    if lacking is not None:
        raise FaultUsageError(f"{name} can't be had here: this cluster lacks {lacking}")
    folder = directory.resolve() / FAULTS_DIRECTORY
    folder.mkdir(exist_ok=True)
    held = HeldFault(
        number=1 + max((fault.number for fault in statuses(directory)), default=0),
        fault=name,
        group=chosen,
        params=dict(params),
        injected_at=time.time(),
    )
    _write(folder, held)
    table = ProcessTable(folder)
    table.start(held.name, ledgermq_argv("chaos", "hold", held.name, str(folder.parent)))
    deadline = time.monotonic() + INJECT_TIMEOUT_S
    while True:
        now = _read(folder / f"{held.name}.json")
        if now.state != "starting":
            return now
        if table.find(held.name) is None:
            raise ClusterError(f"{held.name} ended:\n{table.output_tail(held.name)}")
        if time.monotonic() >= deadline:
            raise ClusterError(f"{held.name} was not injected within {INJECT_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def heal(directory: Path) -> list[HeldFault]:
    """Heal every fault that is held; return those, as they ended, and those that were abandoned.

    Raises ClusterError, ProcessError, OSError.
    """
    load_layout(directory)
    names = end_faults(directory.resolve())
    ended = []
    for fault in statuses(directory):
        if fault.state == "abandoned":  # told once: a person puts right what it did
            fault.state, fault.evidence = "not healed", _ABANDONED
            _write(directory.resolve() / FAULTS_DIRECTORY, fault)
            ended.append(fault)
        elif fault.name in names:
            ended.append(fault)
    return ended


def statuses(directory: Path) -> list[HeldFault]:
    """Return every fault that was injected by hand, oldest first.

    Raises ClusterError, ProcessError.
    """
    load_layout(directory)
    folder = directory.resolve() / FAULTS_DIRECTORY
    if not folder.is_dir():
        return []
    table = ProcessTable(folder)
    faults = [_read(path) for path in folder.glob("fault-*.json")]
    for fault in faults:
        if fault.state not in ENDS and table.find(fault.name) is None and _is_old(fault):
            fault.state = "abandoned"
    return sorted(faults, key=lambda fault: fault.number)


def _system(directory: Path, layout: ClusterLayout) -> LedgermqSystem:
    return LedgermqSystem(
        directory,
        layout,
        ends_with_us=False,
        traces=traces(directory, layout),
        failpoints=(directory / FAILPOINTS).is_dir(),
    )


async def hold(directory: Path, name: str) -> None:
    """Inject the fault of that name (fault-1), hold it until a stop signal, and heal it."""
    folder = directory / FAULTS_DIRECTORY
    held = _read(folder / f"{name}.json")
    stopped = asyncio.Event()
    for signal_number in heeded_stop_signals():
        asyncio.get_running_loop().add_signal_handler(signal_number, stopped.set)
    layout = load_layout(directory)
    system = _system(directory, layout)
    world = World("by hand", system, NoLinks(), ())
    watch = ClusterWatch(system)
    watching = asyncio.create_task(watch.run(), name="watch")
    spec = CATALOGUE[held.fault]
    fault = spec.make(
        FaultContext(
            world=world,
            rng=random.Random(secrets.randbits(64)),
            group=held.group,
            tag=held.name,
            params=held.params,
            leader=watch.leader,
            statuses=lambda: watch.statuses,
        )
    )
    try:
        await watch.await_leader(held.group, LEADER_TIMEOUT_S)
        await fault.setup()
    except FAULT_ERRORS as error:
        held.state, held.evidence = "refused", str(error)
        _write(folder, held)
        watching.cancel()
        return
    held.targets = fault.targets
    try:
        await _inject(fault, held, spec)
        held.state = "active"
        _write(folder, held)
        await stopped.wait()
    finally:
        await _heal(fault, held, folder)
        watching.cancel()


async def _inject(fault: Fault, held: HeldFault, spec: FaultSpec) -> None:
    try:
        await fault.inject()
        observation = await _await_seen(fault.probe, max(EFFECT_TIMEOUT_S, spec.effect_timeout_s))
    except FAULT_ERRORS as error:
        held.evidence = f"injection failed: {error}"
        return
    held.evidence = observation.evidence
    held.effect = {True: "taken", False: "not_taken", None: "unknown"}[observation.seen]


async def _heal(fault: Fault, held: HeldFault, folder: Path) -> None:
    held.state = "healing"
    _write(folder, held)
    try:
        await fault.heal()
        observation = await _await_seen(fault.probe_healed, HEALED_TIMEOUT_S)
    except FAULT_ERRORS as error:
        held.state, held.evidence = "not healed", f"the heal failed: {error}"
    else:
        held.state = "healed" if observation.seen else "not healed"
        held.evidence = observation.evidence
    _write(folder, held)


async def _await_seen(probe: Callable[[], Awaitable[Observation]], timeout_s: float) -> Observation:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        observation = await probe()
        if observation.seen or observation.final or loop.time() >= deadline:
            return observation
        await asyncio.sleep(PROBE_PAUSE_S)


def _value(key: str, text: str, default: Parameter | None) -> object:
    """Return the text as the type of the default; what is none stays a text, to be refused."""
    try:
        match default:
            case bool():
                return {"true": True, "false": False}[text.lower()]
            case int():
                return int(text)
            case float():
                return float(text)
            case _:
                return text
    except (KeyError, ValueError) as error:
        raise FaultUsageError(f"{key}: {text!r} is no {type(default).__name__}") from error


def _is_old(fault: HeldFault) -> bool:
    """Return whether its holder must have been started by now."""
    return fault.state != "starting" or time.time() - fault.injected_at > LEADER_TIMEOUT_S


def _write(folder: Path, held: HeldFault) -> None:
    draft = folder / f"{held.name}.tmp"
    draft.write_text(json.dumps(dataclasses.asdict(held), indent=1) + "\n", encoding="utf-8")
    draft.replace(folder / f"{held.name}.json")


def _read(path: Path) -> HeldFault:
    try:
        return HeldFault(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ClusterError(f"{path} is damaged: {error}") from error
