"""Network namespaces that live as long as this process: made, entered, and used by sockets.

Place in the data path: `chaos.netns.network` makes one for each place of a run.

A namespace has no name and no process of its own: an open descriptor of this process holds it, and
processes started in it. So nothing is left once this process and those that end with it are gone,
also after SIGKILL. A socket stays in the namespace in which it was made, whoever uses it: one is
opened by a short-lived thread that enters the namespace first, and connected by the caller.

Invariants: only threads of this module change their namespace, and the one that calls `enter`; a
thread that entered for a moment ends and serves nobody else.

Source: network_namespaces(7), setns(2), unshare(2).
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["Namespace", "NamespaceError"]

COMMAND_TIMEOUT_S: Final = 20.0
_CLONE_NEWNET: Final = 0x40000000
_OF_THIS_THREAD: Final = "/proc/thread-self/ns/net"
T = TypeVar("T")


class NamespaceError(Exception):
    """A namespace could not be made, entered or filled; the text says what and why."""


class Namespace:
    """One network namespace, held until `close`."""

    def __init__(self) -> None:
        """Make it, with nothing in it but a loopback that is down. Raises NamespaceError."""
        self._descriptor = _in_thread(_make)
        self._before: int | None = None

    @property
    def path(self) -> str:
        """The file by which other processes of this user enter it while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def close(self) -> None:
        """Let the namespace go; it ends with the last process and socket in it."""
        assert self._before is None, "the thread that entered has left"
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket of the namespace, bound to nothing. Raises NamespaceError."""
        return self.call(lambda: socket.socket(family, kind, protocol))

    def call(self, function: Callable[[], T]) -> T:
        """Call it in a thread that entered the namespace. Raises what it raises, NamespaceError."""

        def entered() -> T:
            _set(self._descriptor)
            return function()

        return _in_thread(entered)

    def enter(self) -> None:
        """Let the calling thread, and threads and processes that it starts, use the namespace."""
        assert self._before is None, "one thread enters at a time"
        before = os.open(_OF_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set(self._descriptor)
        except NamespaceError:
            os.close(before)
            raise
        self._before = before

    def leave(self) -> None:
        """Let the thread that entered use its old namespace again. Safe to call at any time."""
        if self._before is not None:
            _set(self._before)
            os.close(self._before)
            self._before = None

    def argv(self, argv: list[str]) -> list[str]:
        """Return the command line that becomes `argv` in the namespace, as the same process."""
        return ["nsenter", f"--net={self.path}", *argv]

    def ip(self, lines: list[str]) -> None:
        """Carry out commands of ip(8) in the namespace. Raises NamespaceError."""
        try:
            done = subprocess.run(
                self.argv(["ip", "-batch", "-"]),
                input="".join(f"{line}\n" for line in lines),
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NamespaceError(f"ip can't be run: {error}") from error
        if done.returncode != 0:
            why = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
            raise NamespaceError(f"ip refused: {why}")


def _make() -> int:
    _check(_LIBC.unshare(_CLONE_NEWNET), "a network namespace can't be made")
    return os.open(_OF_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)


def _set(descriptor: int) -> None:
    _check(_LIBC.setns(descriptor, _CLONE_NEWNET), "a network namespace can't be entered")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise NamespaceError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _in_thread(function: Callable[[], T]) -> T:
    """Call the function in a thread of its own; return or raise what it does."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function())
        except (NamespaceError, OSError) as error:  # any other is a bug, which the thread reports
            errors.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
