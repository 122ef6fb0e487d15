"""The process that runs at this moment, and what its loop and its connections see of it.

Place in the data path: `chaos.sim.machine.virtual_loop` enters a process before it runs anything of
it; the substitutes of `virtual_stdlib` look the current one up (`virtual_host.current`). Loop,
connections and process need one another: they meet in the two classes here, and each of their
modules imports only those below it (`tcp_transport`, `tcp`, `virtual_loop`, `virtual_host`).

Invariants: at most one process is current; outside of every process there is none.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeVarTuple

from chaos.sim.machine.virtual_clock import VirtualClock

__all__ = ["Process", "ProcessLoop", "enter", "leave", "running"]

_Ts = TypeVarTuple("_Ts")


class Process(Protocol):
    """One incarnation of a program; `chaos.sim.machine.virtual_host` implements it."""

    name: str
    host: str
    clock: VirtualClock
    graveyard: list[asyncio.Task[Any]]
    failures: list[Exception]
    on_callback_error: Callable[[Exception], bool]

    @property
    def loop(self) -> ProcessLoop: ...

    def on_thread(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Carry `work` out after a delay, then pass the loop its result or what it raised."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """The loop of one process; `chaos.sim.machine.virtual_loop` implements it."""

    process: Process
    dead: bool

    @abstractmethod
    def post(self, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Run a callback now, and then everything that it makes ready."""


_current: list[Process | None] = [None]


def running() -> Process | None:
    """Return the current process; None outside of every process."""
    return _current[0]


def enter(process: Process) -> Process | None:
    """Make the process current; return the previous one, for `leave`."""
    before = _current[0]
    _current[0] = process
    return before


def leave(before: Process | None) -> None:
    _current[0] = before
