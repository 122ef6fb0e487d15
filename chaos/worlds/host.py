"""Where an experiment runs: its event loop, its clock, and how its world is made.

Place in the data path: `chaos.experiment.experiment` runs its phases on a Host. `RealHost` is this
machine; the simulator has one on virtual time (`chaos.sim.world.simulated_host`).

Invariant: times of a run are those of the host's clock, which all processes of the run share.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvloop

from chaos.cluster.layout import ClusterLayout
from chaos.cluster.stop_signals import heeded_stop_signals
from chaos.worlds.world import World

__all__ = ["Host", "RealHost", "WorldOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Options of an experiment for its world.

    `toxiproxy_url` None: a server of its own. `failpoints`: brokers start with them, where the
    system has any.
    """

    run: Path
    layout: ClusterLayout
    client_slots: Sequence[str]
    toxiproxy_url: str | None
    rng: random.Random
    failpoints: bool = False


class Host(Protocol):
    """Machine of an experiment. `has_real_time`: what takes long is worth a process beside it."""

    has_real_time: bool

    def now_ns(self) -> int:
        """Return the monotonic clock that all processes of a run share."""

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run to the end; raises what `main` raises."""

    def stop_signals(self) -> AbstractContextManager[None]:
        """Let a stop signal cancel the current task while the context lasts."""

    def make_world(self, options: WorldOptions) -> World:
        """Make the world; called by the running `main`."""


class RealHost:
    """Host that is this machine, with processes of its own and real time."""

    has_real_time = True

    def __init__(self, make: Callable[[WorldOptions], World]) -> None:
        self._make = make

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    @contextlib.contextmanager
    def stop_signals(self) -> Iterator[None]:
        """Let a stop signal cancel the experiment, which then cleans up.

        A second one changes nothing, so that the clean-up itself is not interrupted.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        stopping = False

        def stop() -> None:
            nonlocal stopping
            if not stopping:
                stopping = True
                task.cancel()

        numbers = heeded_stop_signals()
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def make_world(self, options: WorldOptions) -> World:
        return self._make(options)
