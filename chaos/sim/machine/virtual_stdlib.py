"""Substitutes that the product's modules get for the real clock, randomness, threads and locks.

Place in the data path: `substituted` is in force while a whole-group seed runs. It walks through
the product's loaded modules and puts a substitute wherever one of them holds the standard library's
`time`, `random`, `os`, `secrets`, `shutil`, `mmap` or a thread pool, or the product's own access to
the disk, the store's lock and the trace. So the product has no switches for the simulator, and a
new call of `time.monotonic` is simulated without further changes.

Invariant: everything a substitute returns comes from the current process of `virtual_host`; leaving
the context puts every name back.

Source: madsim replaces libc's clock and randomness in the same way.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import mmap
import os
import random
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ParamSpec, TypeVar

import raft.peers.connection
import remoting.connections.connection
from broker.entry.payload import UNIT_SIZE
from broker.queues.derived_files import FILE_SIZE, FILE_UNITS
from broker.queues.state_machine import BrokerStateMachine
from chaos.sim.machine.sync_lock import SyncLock
from chaos.sim.machine.violation import CrashNow, Violation
from chaos.sim.machine.virtual_host import current
from raft.log.disk import OsDisk
from raft.messages import Index
from raft.node.apply_schedule import ApplySchedule
from raft.node.core_shell import CoreShell
from raft.node.node_config import NodeConfig
from raft.replicated_log import CommittedEntry
from raft.store.node_store import NodeStore
from raft.store.store_lock import StoreLock
from raft.store.trace import RaftTrace

__all__ = ["substituted"]

_T = TypeVar("_T")
_P = ParamSpec("_P")
_FILE_UNITS = 32
_PACKAGES = ("raft", "remoting", "broker", "client", "namesrv")
_IMPORTED_LATE = ("broker.process.ha_entries",)
"""Modules, with those under them, that the product imports where it needs them: one that came while
the substitutes are in place would get none.
"""


class _Module(ModuleType):
    """The real module, but for the given names."""

    def __init__(self, real: ModuleType, **names: object) -> None:
        super().__init__(real.__name__)
        self._real = real
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


# --- clocks -------------------------------------------------------------------------------------


def _monotonic() -> float:
    return current().clock.monotonic()


def _monotonic_ns() -> int:
    return int(current().clock.monotonic() * 1e9)


def _time_ns() -> int:
    return current().clock.wall_ns()


def _time() -> float:
    return current().clock.wall_ns() / 1e9


# --- randomness and names -----------------------------------------------------------------------


class _Random(random.Random):
    """A generator that the process seeds where the product gives no seed."""

    def __init__(self, x: Any = None) -> None:
        super().__init__(current().rng.getrandbits(64) if x is None else x)


def _random_bytes(size: int | None = None) -> bytes:
    return current().rng.randbytes(32 if size is None else size)


def _token_hex(size: int | None = None) -> str:
    return _random_bytes(size).hex()


def _random_below(limit: int) -> int:
    return current().rng.randrange(limit)


def _random_bits(count: int) -> int:
    return current().rng.getrandbits(count)


def _getpid() -> int:
    return 1_000 + current().number


# --- files that do not go through raft.storage.Disk ---------------------------------------------


def _open(path: Any, flags: int, mode: int = 0o777) -> int:
    """Open a descriptor that is closed when the process dies, as a kernel would."""
    descriptor = os.open(path, flags, mode)
    current().descriptors.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    process = current()
    if process.alive and descriptor in process.descriptors:
        process.descriptors.discard(descriptor)
        os.close(descriptor)


def _pwrite(descriptor: int, data: bytes, offset: int) -> int:
    if not current().alive:
        raise CrashNow("write to a file")
    return os.pwrite(descriptor, data, offset)


def _map(*args: Any, **options: Any) -> mmap.mmap:
    area = mmap.mmap(*args, **options)
    current().areas.append(area)
    return area


def _disk_usage(_: object) -> SimpleNamespace:
    return SimpleNamespace(**current().disk_usage())


def _fsync(descriptor: int) -> None:
    """Do nothing, as no such file is on a disk; `DerivedState` records it for power failures."""
    os.fstat(descriptor)  # a closed descriptor is an error all the same
    current().on_fsync(descriptor)


class _NoLock:
    """A lock that is always free: `VirtualProcess` runs one broker at a time on a machine."""

    def __init__(self, store: Path) -> None:
        del store

    def release(self) -> None:
        """Do nothing: nothing was locked."""


def _disk_of_machine(root: Path) -> Any:
    return current().open_disk(root)


def _trace_of_process(directory: Path, incarnation: int) -> Any:
    del directory
    return current().open_trace(incarnation)


class _WatchedStateMachine(BrokerStateMachine):
    """A state machine that shows what it applies before it does."""

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        current().on_apply(entries)
        super().apply(entries)


class _WatchedShell(CoreShell):
    """A shell that watches its reads: none is answered before what was committed when it was asked
    for is applied."""

    def __init__(self, config: NodeConfig, store: NodeStore, *args: Any, **options: Any) -> None:
        store.log._sync_lock = SyncLock(store.log)  # type: ignore[assignment]  # as good as a lock
        super().__init__(config, store, *args, **options)

    async def read_index(self) -> Index:
        committed = self.core.commit_index
        index = await super().read_index()
        if self.applier.applied_index < committed:
            what = f"{current().name} answers a read that was asked for at {committed} committed, "
            failure = Violation("reads", f"{what}{self.applier.applied_index} applied")
            current().failures.append(failure)
        return index


class _LateSchedule(ApplySchedule):
    """A schedule that can apply committed entries late."""

    def due(self, *, later: bool = False) -> None:
        delay_us = current().apply_delay_us()
        if not delay_us:
            super().due(later=later)
        elif not self._is_scheduled:
            self.due_in(delay_us / 1_000_000)


# --- threads ------------------------------------------------------------------------------------


class _Pool:
    """A pool of one thread: work waits for the work before it."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        del max_workers, thread_name_prefix
        self._process = current()
        self._waiting: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._busy = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        self._waiting.append((partial(fn, *args, **kwargs), future))
        self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: work under way ends by itself."""

    def _begin(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        work, future = self._waiting.pop(0)
        self._process.on_thread(work, partial(self._end, future), takes_disk_time=True)

    def _end(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        self._busy = False
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        self._begin()


# --- putting them in place ----------------------------------------------------------------------

_TIME = _Module(
    time,
    monotonic=_monotonic,
    monotonic_ns=_monotonic_ns,
    perf_counter=_monotonic,
    time=_time,
    time_ns=_time_ns,
)
_OF_ALL_PROGRAMS: tuple[tuple[object, object], ...] = (
    (time, _TIME),
    (time.monotonic, _monotonic),
    (time.perf_counter, _monotonic),
    (time.time, _time),
    (random, _Module(random, Random=_Random)),
    (
        secrets,
        _Module(
            secrets,
            token_bytes=_random_bytes,
            token_hex=_token_hex,
            randbelow=_random_below,
            randbits=_random_bits,
        ),
    ),
)
_OF_THE_PRODUCT: tuple[tuple[object, object], ...] = (
    (
        os,
        _Module(
            os,
            getpid=_getpid,
            urandom=_random_bytes,
            open=_open,
            close=_close,
            pwrite=_pwrite,
            fsync=_fsync,
            fdatasync=_fsync,
        ),
    ),
    (shutil, _Module(shutil, disk_usage=_disk_usage)),
    (mmap, _Module(mmap, mmap=_map)),
    (ThreadPoolExecutor, _Pool),
    (OsDisk, _disk_of_machine),
    (StoreLock, _NoLock),
    (RaftTrace, _trace_of_process),
    (BrokerStateMachine, _WatchedStateMachine),
    (CoreShell, _WatchedShell),
    (ApplySchedule, _LateSchedule),
)
# Small files, so that a seed writes several of a queue.
_SMALL_FILES: tuple[tuple[object, object], ...] = (
    (FILE_UNITS, _FILE_UNITS),
    (FILE_SIZE, _FILE_UNITS * UNIT_SIZE),
)

_HELD_IN_SETS: tuple[type, ...] = (
    remoting.connections.connection.Connection,
    raft.peers.connection._Connection,
)
"""Classes kept in sets: their order must not come from addresses in memory."""


def _hash_of(one: Any, serials: Iterator[int]) -> int:
    serial = one.__dict__.get("_serial")
    if serial is None:
        serial = one.__dict__["_serial"] = next(serials)
    return int(serial)


@contextmanager
def substituted(
    parts: Sequence[tuple[object, object]] = (),
    *,
    rooms: tuple[str, ...] = (),
    small_files: bool = True,
) -> Iterator[None]:
    """Run the product in simulated processes only, while the context lasts.

    `parts`: the product's parts for which a test has a substitute with a bug. `rooms`: what of the
    laboratory runs in simulated processes too, with real files.
    """
    for late in _IMPORTED_LATE:
        importlib.import_module(late)
    small = _SMALL_FILES if small_files else ()
    of_all = dict(_by_identity(_OF_ALL_PROGRAMS))
    of_the_product = of_all | _by_identity((*_OF_THE_PRODUCT, *small, *parts))
    undo: list[Callable[[], None]] = []
    logging.disable(logging.CRITICAL)
    serials = itertools.count()
    inside = tuple(f"{room}." for room in rooms)
    try:
        for kind in _HELD_IN_SETS:
            undo.append(partial(setattr, kind, "__hash__", kind.__hash__))
            kind.__hash__ = partialmethod(_hash_of, serials)  # type: ignore[assignment]
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _PACKAGES:
                _substitute_in(module, of_the_product, undo)
            elif f"{name}.".startswith(inside):
                _substitute_in(module, of_all, undo)
        yield
    finally:
        for put_back in reversed(undo):
            put_back()
        logging.disable(logging.NOTSET)


def _by_identity(pairs: Sequence[tuple[object, object]]) -> dict[int, object]:
    return {id(real): substitute for real, substitute in pairs}


def _substitute_in(
    module: ModuleType, by_identity: dict[int, object], undo: list[Callable[[], None]]
) -> None:
    defines = module.__name__
    for name, value in list(vars(module).items()):
        substitute = by_identity.get(id(value))
        if substitute is not None and getattr(value, "__module__", None) != defines:
            setattr(module, name, substitute)
            undo.append(partial(setattr, module, name, value))
        elif isinstance(value, type) and value.__module__ == defines:
            for member in vars(value).values():
                if isinstance(member, FunctionType) and member.__kwdefaults__:
                    _substitute_defaults(member, by_identity, undo)


def _substitute_defaults(
    function: FunctionType, by_identity: dict[int, object], undo: list[Callable[[], None]]
) -> None:
    defaults = function.__kwdefaults__ or {}
    for name, value in list(defaults.items()):
        if id(value) in by_identity:
            defaults[name] = by_identity[id(value)]
            undo.append(partial(defaults.__setitem__, name, value))
