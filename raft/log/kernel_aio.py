"""Fsyncs that the kernel carries out beside the event loop: Linux AIO, by its system calls.

Place in the data path: `raft.log.disk` submits the fsync of a log file here where the machine can;
the loop is woken by an eventfd once it is done. A thread that calls fdatasync costs two hand-overs
of the interpreter's lock and four wake-ups instead.

Invariants: nothing here waits but `wait`, and `try_out`, which has a bound; at most `_DEPTH` fsyncs
are under way, one more is refused; each callback is called once, on the loop; an fsync that is
refused was not begun.

Not every file system can: the trial ends with EINVAL then. Nor does every sandbox allow it: ENOSYS,
EPERM. Old kernels refuse the operation: EINVAL. What is said in these errors names the call.

An iocb, little-endian:

| offset | size | field |
|---|---|---|
| 0 | 8 | aio_data: returned with the completion |
| 8 | 4 | aio_key: written by the kernel |
| 12 | 4 | aio_rw_flags: 0 |
| 16 | 2 | aio_lio_opcode: 3, IOCB_CMD_FDSYNC |
| 18 | 2 | aio_reqprio: 0 |
| 20 | 4 | aio_fildes |
| 24 | 8 | aio_buf: 0 |
| 32 | 8 | aio_nbytes: 0 |
| 40 | 8 | aio_offset: 0 |
| 48 | 8 | aio_reserved2: 0 |
| 56 | 4 | aio_flags: 1, IOCB_FLAG_RESFD |
| 60 | 4 | aio_resfd: the eventfd |

Completions are taken from the ring that the context is, as libaio's callers do: a header of eight
32-bit numbers (id, number of events, head, tail, magic, compatible and incompatible features, size
of the header), then events. The reader moves the head, the kernel the tail.

Source: linux/aio_abi.h, io_submit(2), fs/aio.c (`aio_fsync`); asm/unistd_64.h and
asm-generic/unistd.h for the numbers.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import functools
import os
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from raft.storage import OnSynced

__all__ = ["FsyncQueue", "examine"]


class _Numbers(NamedTuple):
    """Numbers of the system calls."""

    io_setup: int
    io_destroy: int
    io_getevents: int
    io_submit: int


_NUMBERS: Final = {
    "x86_64": _Numbers(io_setup=206, io_destroy=207, io_getevents=208, io_submit=209),
    "aarch64": _Numbers(io_setup=0, io_destroy=1, io_getevents=4, io_submit=2),
}
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")  # data, iocb, result, second result
_TIMEOUT: Final = struct.Struct("<qq")  # seconds, nanoseconds
_RING: Final = struct.Struct("<8I")
_RING_ENDS: Final = struct.Struct("<II")
_RING_HEAD: Final = struct.Struct("<I")
_RING_ENDS_AT: Final = 8
_RING_MAGIC: Final = 0xA10A10A1
_FDSYNC: Final = 3
_RESFD: Final = 1
_DEPTH: Final = 4
_TRIAL_S: Final = 1
assert _IOCB.size == 64
assert _EVENT.size == 32


class FsyncQueue:
    """Fsyncs under way in the kernel. Make it and call it on one thread.

    Raises OSError where the machine has no such calls, or refuses them.
    """

    def __init__(self) -> None:
        if sys.platform != "linux" or platform.machine() not in _NUMBERS:
            raise _error(errno.ENOSYS, f"kernel AIO on {sys.platform}, {platform.machine()}")
        self._calls = calls = _Calls(_NUMBERS[platform.machine()])
        context = ctypes.c_ulong(0)
        if calls.io_setup(_DEPTH, ctypes.byref(context)) < 0:
            raise _error(ctypes.get_errno(), "io_setup")
        self._context = context.value
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: dict[int, OnSynced] = {}
        self._count = 0
        # The kernel copies an iocb when it is submitted, so one serves all.
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._events = ctypes.create_string_buffer(_EVENT.size * _DEPTH)
        self._no_time = ctypes.create_string_buffer(_TIMEOUT.pack(0, 0))
        self._ring: memoryview[int] | None = None
        self._ring_count = self._ring_begin = 0
        self._find_ring()

    @property
    def under_way(self) -> int:
        """How many fsyncs have begun and not ended."""
        return len(self._under_way)

    def try_out(self, path: Path) -> None:
        """Fsync a file and wait for it. Raises OSError where that fails, or takes a second."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not self.submit(descriptor, lambda _: None):
                raise _error(ctypes.get_errno(), "io_submit of an fsync")
        finally:
            os.close(descriptor)
        ended = self._reap(least=1, timeout=ctypes.create_string_buffer(_TIMEOUT.pack(_TRIAL_S, 0)))
        if not ended:
            raise _error(errno.ETIMEDOUT, "an fsync by kernel AIO")
        for _, error in ended:
            if error is not None:
                raise error

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop call the callbacks from now on."""
        self._loop = loop
        loop.add_reader(self._eventfd, self._on_event)

    def submit(self, descriptor: int, on_done: OnSynced) -> bool:
        """Begin to make data and size of the file durable, all that was written before this call.

        False: the kernel has not begun, and `on_done` is not called.
        """
        if len(self._under_way) >= _DEPTH:
            return False
        self._count = number = self._count + 1
        _IOCB.pack_into(
            self._iocb, 0, number, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _RESFD, self._eventfd
        )
        self._under_way[number] = on_done
        if self._calls.io_submit(self._context, 1, self._iocbs) != 1:
            del self._under_way[number]
            return False
        return True

    def wait(self) -> OSError | None:
        """Wait until none is under way; return what one has failed with. Callbacks follow later."""
        assert self._loop is not None, "the queue has no loop"
        failure: OSError | None = None
        while self._under_way:
            for on_done, error in self._reap(least=1, timeout=None):
                failure = failure or error
                self._loop.call_soon(on_done, error)
        return failure

    def close(self) -> None:
        """End the queue; call no more callbacks. What a hanging disk has not ended goes on."""
        if self._eventfd < 0:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._eventfd)
        if not self._under_way:
            self._ring = None  # its memory goes with it
            # With an fsync under way it would wait for that; the end of the process does.
            self._calls.io_destroy(self._context)
        os.close(self._eventfd)
        self._eventfd = -1

    def _on_event(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return  # another call has read it
        ended = (
            self._reap(least=0, timeout=self._no_time) if self._ring is None else self._reap_ring()
        )
        for on_done, error in ended:
            on_done(error)

    def _find_ring(self) -> None:
        """Find the ring in which the kernel leaves completions; an unknown layout is not used."""
        head = (ctypes.c_char * _RING.size).from_address(self._context)
        _, count, _, _, magic, _, incompatible, header_size = _RING.unpack(bytes(head))
        if magic == _RING_MAGIC and not incompatible:
            size = header_size + count * _EVENT.size
            ring = (ctypes.c_ubyte * size).from_address(self._context)
            self._ring, self._ring_count, self._ring_begin = memoryview(ring), count, header_size

    def _reap_ring(self) -> list[tuple[OnSynced, OSError | None]]:
        """Return what has ended, as `_reap` does, without a system call. The eventfd was read: all
        that was completed before it was signalled is seen."""
        ring = self._ring
        assert ring is not None
        head, tail = _RING_ENDS.unpack_from(ring, _RING_ENDS_AT)
        ended: list[tuple[OnSynced, OSError | None]] = []
        while head != tail:
            ended.append(
                self._ended(_EVENT.unpack_from(ring, self._ring_begin + _EVENT.size * head))
            )
            head = (head + 1) % self._ring_count
        _RING_HEAD.pack_into(ring, _RING_ENDS_AT, head)
        return ended

    def _ended(self, event: tuple[int, int, int, int]) -> tuple[OnSynced, OSError | None]:
        number, _, result, _ = event
        error = None if result >= 0 else _error(-result, "fsync by kernel AIO")
        return self._under_way.pop(number), error

    def _reap(
        self, *, least: int, timeout: ctypes.Array[ctypes.c_char] | None
    ) -> list[tuple[OnSynced, OSError | None]]:
        """Return callbacks and outcomes of what has ended, at least so many within the timeout."""
        events = self._events
        count = self._calls.io_getevents(self._context, least, _DEPTH, events, timeout)
        if count < 0:
            if ctypes.get_errno() == errno.EINTR:
                return []
            raise _error(ctypes.get_errno(), "io_getevents")
        return [
            self._ended(_EVENT.unpack_from(events, _EVENT.size * place)) for place in range(count)
        ]


class _Calls:
    """The system calls, which no libc has: each with its number and the types of its arguments."""

    def __init__(self, numbers: _Numbers) -> None:
        context, count, pointer = ctypes.c_ulong, ctypes.c_long, ctypes.c_void_p
        self.io_setup = _call(numbers.io_setup, ctypes.c_uint, pointer)
        self.io_destroy = _call(numbers.io_destroy, context)
        self.io_getevents = _call(numbers.io_getevents, context, count, count, pointer, pointer)
        self.io_submit = _call(numbers.io_submit, context, count, pointer)


def _call(number: int, *types: type) -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True)["syscall"]
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, *types)
    return functools.partial(call, number)


def examine(path: Path) -> str | None:
    """Return why a file like this one can't be fsynced by the kernel's AIO; None: it can."""
    try:
        queue = FsyncQueue()
        try:
            queue.try_out(path)
        finally:
            queue.close()
    except OSError as error:
        return str(error)
    return None


def _error(number: int, what: str) -> OSError:
    return OSError(number, f"{os.strerror(number)} ({what})")
