"""The delay line: a device of the switch that gives back each frame after a while.

Place in the data path: rules of `chaos.netns.rules` hand frames of slowed flows to a TAP device
whose far end this process reads; `chaos.netns.departures` says when each goes back into the switch.
It stands in for netem, which is not in every kernel, and delays connections that are there already.

Invariants: frames that can't be sent on are counted and lost, as on any wire; nothing waits once it
is closed.

Source: Linux' Documentation/networking/tuntap.rst; netem(8).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
from pathlib import Path
from typing import Final

from chaos.netns.departures import Departures

__all__ = ["DelayLine", "open_tap"]

TUN_DEVICE: Final = Path("/dev/net/tun")
FRAMES_PER_TURN: Final = 64
FRAME_SIZE_MAX: Final = 65_536
_TUNSETIFF: Final = 0x400454CA
_TAP, _NO_HEADER = 0x0002, 0x1000


def open_tap(name: str) -> int:
    """Make a TAP device in the calling thread's namespace; return its descriptor.

    Raises OSError. The device is gone once the descriptor is closed.
    """
    descriptor = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(
            descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER)
        )
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class DelayLine:
    """The loop's end of the device, from `start` to `close`."""

    def __init__(self, descriptor: int, rng: random.Random) -> None:
        """Take the descriptor over: `close` closes it."""
        self._descriptor = descriptor
        self._rng = rng
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.TimerHandle] = set()
        self.departures: Final = Departures()
        self.lost = 0  # frames that the device did not take

    def start(self) -> None:
        """Read frames by the running loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def close(self) -> None:
        """Lose what waits, and end. Safe to call twice."""
        if self._descriptor < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
        for handle in self._waiting:
            handle.cancel()
        self._waiting.clear()
        os.close(self._descriptor)
        self._descriptor = -1

    def _read(self) -> None:
        assert self._loop is not None
        for _ in range(FRAMES_PER_TURN):
            try:
                frame = os.read(self._descriptor, FRAME_SIZE_MAX)
            except BlockingIOError:
                return
            now_s = self._loop.time()
            due_s = self.departures.departure_s(frame, now_s=now_s, rng=self._rng)
            if due_s is not None:
                self._send_at(due_s, frame)

    def _send_at(self, due_s: float, frame: bytes) -> None:
        assert self._loop is not None

        def send() -> None:
            self._waiting.discard(handle)
            self.departures.departed(frame)
            try:
                os.write(self._descriptor, frame)
            except OSError:  # its queue is full, or the switch is going down
                self.lost += 1

        handle = self._loop.call_at(due_s, send)
        self._waiting.add(handle)
