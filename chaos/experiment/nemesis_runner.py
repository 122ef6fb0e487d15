"""Injects and heals the scenario's faults on time, and records each with its effect.

Place in the data path: started by `chaos.experiment.experiment` for the load phase; writes fault
rows to `chaos.recording.history`.

Invariants: every fault that was injected is healed, also when the experiment is cancelled in its
middle; a heal that fails is tried again for a while, since another fault may stand in its way (no
setting can be changed back on a broker that is down); a fault counts as taken only where a probe
saw its effect; one that found no target or whose effect was not seen is `not_taken`, one whose
injection failed or could not be probed is `unknown`. What a step of a fault may raise
(`chaos.nemesis.base.FAULT_ERRORS`) is written to the fault's own evidence and never stops the
others; any other exception is a bug of ours, and ends the experiment.

Source: the run format (faults); Jepsen's nemesis.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.experiment.majority_guard import MajorityGuard, touched_by
from chaos.nemesis.base import (
    FAULT_ERRORS,
    Fault,
    FaultContext,
    FaultNotPossibleError,
    FaultSpec,
    Observation,
)
from chaos.nemesis.catalogue import CATALOGUE
from chaos.recording.history import HistoryWriter
from chaos.scenario.schedule import FaultStep
from chaos.systems.watch import ClusterWatch
from chaos.worlds.world import World

__all__ = ["ActiveFault", "Nemesis"]

EFFECT_TIMEOUT_S: Final = 3.0
HEALED_TIMEOUT_S: Final = 20.0
LEADER_TIMEOUT_S: Final = 6.0
HEAL_RETRY_S: Final = 0.2
PROBE_PAUSE_S: Final = 0.02
ROOM_POLL_S: Final = 0.2
EVIDENCE_MAX: Final = 2000


@dataclass(slots=True)
class ActiveFault:
    """The known state of one injection, for live progress and its fault row."""

    number: int
    step: FaultStep
    targets: list[str]
    t_start: int
    t_effect: int | None = None
    t_heal: int | None = None
    t_healed: int | None = None
    effect: str = "unknown"
    evidence: str = ""


class Nemesis:
    """Runs one scenario's faults against one world."""

    def __init__(
        self,
        world: World,
        history: HistoryWriter,
        watch: ClusterWatch,
        rng: random.Random,
    ) -> None:
        self._world = world
        self._history = history
        self._watch = watch
        self._rng = rng
        self.faults: list[ActiveFault] = []
        self._guard = MajorityGuard(
            {
                group: [place.name for place in places]
                for group, places in world.layout.groups.items()
            }
        )

    @property
    def active(self) -> list[ActiveFault]:
        """Faults that are injected and not yet seen healed."""
        return [fault for fault in self.faults if fault.targets and fault.t_healed is None]

    async def run(self, steps: Sequence[FaultStep]) -> None:
        """Run all faults until every one is over. Times of the steps count from now."""
        begin = asyncio.get_running_loop().time()
        groups = list(self._world.layout.groups)
        async with asyncio.TaskGroup() as tasks:
            for number, step in enumerate(steps):
                rng = random.Random(self._rng.getrandbits(64))
                group = step.group or rng.choice(groups)
                tasks.create_task(self._run_step(begin, number, step, group, rng))

    async def _run_step(
        self, begin: float, number: int, step: FaultStep, group: str, rng: random.Random
    ) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, begin + step.at_s - loop.time()))
        record = ActiveFault(number=number, step=step, targets=[], t_start=self._history.now_ns())
        self.faults.append(record)
        context = FaultContext(
            world=self._world,
            rng=rng,
            group=group,
            tag=f"fault-{number}",
            params=step.params,
            leader=self._watch.leader,
            statuses=lambda: self._watch.statuses,
        )
        spec = CATALOGUE[step.name]
        end = begin + step.at_s + step.duration_s
        notes: list[str] = []
        try:
            lacking = spec.missing_in(self._world.system.parts, self._world.links.effects)
            if lacking is not None:
                raise FaultNotPossibleError(f"the world {self._world.name} lacks {lacking}")
            await self._watch.await_leader(group, LEADER_TIMEOUT_S)
            fault = await self._set_up(number, step, spec, context, end)
        except FAULT_ERRORS as error:
            record.effect = "not_taken"
            record.evidence = str(error)
            record.t_heal = record.t_healed = self._history.now_ns()
            self._write(record, step.params)
            return
        record.targets = fault.targets
        record.t_start = self._history.now_ns()
        self._write(record, step.params)
        before = self._watch.describe(group)
        try:
            await self._inject(fault, record, notes, spec.effect_timeout_s)
            self._write(record, step.params)
            await asyncio.sleep(max(0.0, end - loop.time()))
            notes.append(f"leader before: {before}; before the heal: {self._watch.describe(group)}")
        finally:
            # A cancelled experiment must not leave a paused or cut node behind.
            await asyncio.shield(self._heal(fault, record, notes))
            self._guard.end(number)
            record.evidence = " | ".join(notes)[:EVIDENCE_MAX]
            self._write(record, step.params)

    async def _set_up(
        self, number: int, step: FaultStep, spec: FaultSpec, context: FaultContext, end: float
    ) -> Fault:
        """Return the fault with its targets; one that must leave a majority untouched waits.

        Raises FaultNotPossibleError, also where it could not begin before its own end.
        """
        loop = asyncio.get_running_loop()
        while True:
            fault = spec.make(context)
            await fault.setup()
            touched = touched_by(fault.targets, roves=spec.roves)
            crowded = self._guard.crowded(touched) if step.within_majority else None
            if crowded is None:
                self._guard.begin(number, touched)
                return fault
            if loop.time() >= end:
                raise FaultNotPossibleError(
                    f"until its end it would have left {crowded} without an untouched majority"
                )
            await asyncio.sleep(ROOM_POLL_S)

    async def _inject(
        self, fault: Fault, record: ActiveFault, notes: list[str], timeout_s: float
    ) -> None:
        try:
            await fault.inject()
            seen, observation = await self._await_seen(
                fault.probe, max(EFFECT_TIMEOUT_S, timeout_s)
            )
        except FAULT_ERRORS as error:
            record.effect = "unknown"
            notes.append(f"injection failed: {error}")
            return
        notes.append(f"effect: {observation.evidence}")
        if observation.seen:
            record.effect = "taken"
            record.t_effect = seen
        else:
            record.effect = "unknown" if observation.seen is None else "not_taken"

    async def _heal(self, fault: Fault, record: ActiveFault, notes: list[str]) -> None:
        record.t_heal = self._history.now_ns()
        try:
            await self._heal_at_last(fault, notes)
            seen, observation = await self._await_seen(fault.probe_healed, HEALED_TIMEOUT_S)
        except FAULT_ERRORS as error:
            notes.append(f"heal failed: {error}")
            return
        notes.append(f"healed: {observation.evidence}")
        if observation.seen:
            record.t_healed = seen

    async def _heal_at_last(self, fault: Fault, notes: list[str]) -> None:
        """Heal the fault, again where that failed and there is time. Raises FAULT_ERRORS."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEALED_TIMEOUT_S
        has_failed = False
        while True:
            try:
                return await fault.heal()
            except FAULT_ERRORS as error:
                if loop.time() >= deadline:
                    raise
                if not has_failed:
                    notes.append(f"heal failed at first: {error}")
                has_failed = True
            await asyncio.sleep(HEAL_RETRY_S)

    async def _await_seen(
        self, probe: Callable[[], Awaitable[Observation]], timeout_s: float
    ) -> tuple[int, Observation]:
        """Repeat a probe until it sees, can't see any more, or time is up.

        Return the start of the last probe: if it saw, the state was reached by then at the latest.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            began = self._history.now_ns()
            observation = await probe()
            is_over = observation.seen or observation.final
            if is_over or asyncio.get_running_loop().time() >= deadline:
                return began, observation
            await asyncio.sleep(PROBE_PAUSE_S)

    def _write(self, record: ActiveFault, params: Mapping[str, object]) -> None:
        self._history.fault(
            record.number,
            name=record.step.name,
            targets=record.targets,
            params=json.dumps({"duration_s": record.step.duration_s, **params}),
            t_start=record.t_start,
            t_effect=record.t_effect,
            t_heal=record.t_heal,
            t_healed=record.t_healed,
            effect=record.effect,
            evidence=record.evidence,
        )
