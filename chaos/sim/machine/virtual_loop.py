"""An asyncio event loop on virtual time: one per simulated process, all in one thread.

Place in the data path: the whole-group seeds run the product's own processes (broker, name server,
clients) on it. What would happen later is an action of `chaos.sim.machine.scheduler`; what would go
over a socket goes through `chaos.sim.machine.tcp`; what would run on a thread runs as one action
after a drawn delay.

Invariants: callbacks run in the order in which they were scheduled, so a seed has exactly one
course; while a callback runs, the loop is asyncio's running loop and its process the current one
(`chaos.sim.machine.current_process`); a killed loop never runs anything again, a paused one keeps
everything for its resume. An exception that the product lets escape into the loop ends the seed.

Source: the interface is asyncio.AbstractEventLoop; the idea is FoundationDB's and madsim's.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import format_helpers
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from chaos.sim.machine.current_process import Process, ProcessLoop, enter, leave
from chaos.sim.machine.violation import CrashNow, Violation

if TYPE_CHECKING:
    from chaos.sim.machine.scheduler import Scheduler
    from chaos.sim.machine.tcp import SimTcp
    from chaos.sim.machine.tcp_transport import SimServer

__all__ = ["VirtualLoop", "acting_as"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_Context = contextvars.Context
_set_running_loop = asyncio._set_running_loop
_CALLBACKS_PER_TURN_MAX = 100_000


@contextmanager
def acting_as(process: Process) -> Iterator[None]:
    """Set clocks and the running loop to those of `process` within the block.

    So the state of a paused process can be read, also from within another process.
    """
    loop_before = asyncio._get_running_loop()
    process_before = enter(process)
    _set_running_loop(process.loop)
    try:
        yield
    finally:
        _set_running_loop(loop_before)
        leave(process_before)


class _Handle(asyncio.Handle):
    """A handle without what asyncio keeps for its debug mode: one is made per callback."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: VirtualLoop,
        context: _Context,
    ) -> None:
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """A timer handle, slim like `_Handle`."""

    __slots__ = ()

    _loop: VirtualLoop

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: VirtualLoop,
        context: _Context,
    ) -> None:
        self._when = when
        self._scheduled = True
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def ring(self) -> None:
        """Run the callback; the scheduler's action for the time when the timer is due."""
        if not self._cancelled:
            self._loop.on_timer(self)


class _Callbacks:
    """Passes what a callback raises to its loop, as `asyncio.Handle` does.

    One block lasts until a callback raises: entering one for each of them would cost as much as
    most of them do.
    """

    __slots__ = ("_loop", "running")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.running: _Handle | _Timer | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        handle, self.running = self.running, None
        if error is None or handle is None or isinstance(error, SystemExit | KeyboardInterrupt):
            return False
        source = format_helpers._format_callback_source(handle._callback, handle._args)
        self._loop.call_exception_handler(
            {"message": f"Exception in callback {source}", "exception": error, "handle": handle}
        )
        return True


class _Future(asyncio.Future[Any]):
    """A future with a serial number as its hash.

    Asyncio holds futures and tasks in sets, whose order must not come from addresses.
    """

    def __init__(self, *, loop: VirtualLoop) -> None:
        self._serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class _Task(asyncio.Task[_T]):
    def __init__(
        self,
        coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
        *,
        loop: VirtualLoop,
        name: str | None,
        context: _Context | None,
    ) -> None:
        self._serial = loop.next_serial()
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._serial


class VirtualLoop(ProcessLoop):
    """The loop. Only what the product calls is there; AbstractEventLoop refuses anything else."""

    def __init__(self, process: Process, scheduler: Scheduler, tcp: SimTcp) -> None:
        self.process = process
        self.tcp = tcp
        self._scheduler = scheduler
        self._ready: deque[_Handle | _Timer] = deque()
        self._context = contextvars.Context()  # the product keeps nothing in it
        self._turn_scheduled = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._serial = 0
        self.paused = False
        self.dead = False
        self.on_resume: list[Callable[[], None]] = []
        self.fuse = 0  # counts callbacks down; `on_fuse` is called instead of the last one
        self.on_fuse: Callable[[], None] = self.kill
        self._run_turn_action = self._run_turn
        self._callbacks = _Callbacks(self)

    # --- callbacks -----------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: _Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context or self._context)
        if self.dead:
            return handle
        self._ready.append(handle)
        if not self._turn_scheduled and not self.paused:
            self._turn_scheduled = True
            self._scheduler.at(self._scheduler.now_us, self._run_turn_action)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: _Context | None = None,
    ) -> asyncio.TimerHandle:
        when = self.process.clock.monotonic() + delay
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: _Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context or self._context)
        if not self.dead:
            due_us = self.process.clock.due_us(when)
            self._scheduler.at(due_us, timer.ring)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer stays in the heap and is skipped when it is due."""

    def post(self, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Run a callback now, and then everything that it makes ready.

        Called by the simulator outside of all processes. From within a turn of this loop the
        callback runs at that turn's end, on a paused loop after its resume, on a killed one never.
        """
        if self.dead:
            return
        self._ready.append(_Handle(callback, args, self, self._context))
        if not self._turn_scheduled:
            self._run_turn()

    def on_timer(self, timer: _Timer) -> None:
        if self.dead:
            return
        self._ready.append(timer)
        if not self._turn_scheduled:
            self._run_turn()

    def _run_turn(self) -> None:
        """Run everything that is ready, and what that makes ready, in order.

        A process at work takes no virtual time.
        """
        self._turn_scheduled = False
        if self.dead or self.paused:
            return
        ready, callbacks = self._ready, self._callbacks
        left = _CALLBACKS_PER_TURN_MAX
        self._turn_scheduled = True  # what is added meanwhile is run below
        process_before = enter(self.process)
        _set_running_loop(self)
        try:
            while ready:
                with callbacks:
                    while ready:
                        callbacks.running = None
                        handle = ready.popleft()
                        if not left:
                            raise Violation("storm", f"{self.process.name} is busy without end")
                        left -= 1
                        if self.fuse:
                            self.fuse -= 1
                            if not self.fuse:
                                self.on_fuse()
                                return
                        if not handle._cancelled:
                            callbacks.running = handle
                            handle._callback(*handle._args)
        finally:
            self._turn_scheduled = False
            _set_running_loop(None)
            leave(process_before)

    # --- pause and death -----------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the loop: nothing runs any more, from this moment on."""
        if self.dead:
            return
        self.dead = True
        self._ready.clear()
        for task in list(self._tasks):
            # A dead process logs nothing about its unfinished work, and finishes none of it.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own way
        self.process.graveyard.extend(self._tasks)
        self._tasks.clear()

    def resume(self) -> None:
        self.paused = False
        waiting, self.on_resume = self.on_resume, []
        for action in waiting:
            self._scheduler.after(0, action)
        if self._ready and not self._turn_scheduled:
            self._turn_scheduled = True
            self._scheduler.at(self._scheduler.now_us, self._run_turn_action)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.dead or isinstance(error, CrashNow):
            return
        if isinstance(error, Violation):
            self.process.failures.append(error)
            return
        if isinstance(error, Exception) and "handle" in context:
            is_its_end = self.process.on_callback_error(error)
            if is_its_end:
                return
        text = f"{self.process.name}: {context.get('message')}: {type(error).__name__}: {error}"
        failure = Violation("escaped", text)
        failure.__cause__ = error if isinstance(error, Exception) else None
        self.process.failures.append(failure)

    def time(self) -> float:
        return self.process.clock.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    # --- futures, tasks, threads ---------------------------------------------------------------

    def next_serial(self) -> int:
        """Return the next hash of a future or task."""
        self._serial += 1
        return self._serial

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
        *,
        name: str | None = None,
        context: _Context | None = None,
        **_: object,
    ) -> asyncio.Task[_T]:
        task: _Task[_T] = _Task(coro, loop=self, name=name, context=context)
        if self.dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own way
            self.process.graveyard.append(task)
        else:
            self._tasks[task] = None
            task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*_Ts], _T],
        *args: *_Ts,
    ) -> asyncio.Future[_T]:
        """Run the work as one action, some time from now; a crash finds it not begun or done."""
        assert executor is None, "the product has no pools of its own here"
        future: asyncio.Future[_T] = self.create_future()
        self.process.on_thread(partial(func, *args), partial(_settle, future))
        return future

    # --- the network ---------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]  # the one way in which it is called
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self.tcp.connect(self, protocol_factory, (host, port))

    async def create_server(  # type: ignore[override]  # the one way in which it is called
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 100,
    ) -> SimServer:
        assert backlog > 0
        return self.tcp.listen(self, protocol_factory, (host, port))


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
