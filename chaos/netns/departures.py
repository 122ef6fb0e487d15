"""When a delayed frame goes on: latency, jitter and a rate for each flow.

Place in the data path: `chaos.netns.delay_line` asks for each frame that it reads. Pure: time and
randomness are arguments.

Invariants: the frames of one flow stay in order; a frame is refused once `WAITING_BYTES_MAX` wait,
as a router with a full queue does.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["WAITING_BYTES_MAX", "Delay", "Departures", "Ends", "ends_of"]

WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
_ADDRESSES: Final = slice(26, 34)  # of an Ethernet frame with IPv4: source, target
Ends: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Delay of a flow: `latency_ms` ± `jitter_ms`, `rate_kb_s` KB/s (0: no limit)."""

    latency_ms: int
    jitter_ms: int
    rate_kb_s: int


class Departures:
    """The delays by flow, and what waits."""

    def __init__(self) -> None:
        self._delays: Mapping[Ends, Delay] = {}
        self._last_s: dict[Ends, float] = {}  # departure of the flow's last frame
        self._sent_s: dict[Ends, float] = {}  # when its last byte was through the narrow part
        self.waiting_bytes = 0
        self.refused = 0

    def set(self, delays: Mapping[Ends, Delay]) -> None:
        """Put these delays in place of the others; what waits goes on when it was due."""
        self._delays = dict(delays)
        self._last_s = {ends: at_s for ends, at_s in self._last_s.items() if ends in delays}
        self._sent_s = {ends: at_s for ends, at_s in self._sent_s.items() if ends in delays}

    def departure_s(self, frame: bytes, *, now_s: float, rng: random.Random) -> float | None:
        """Return when the frame is due, None where it is refused. It waits until `departed`."""
        if self.waiting_bytes + len(frame) > WAITING_BYTES_MAX:
            self.refused += 1
            return None
        self.waiting_bytes += len(frame)
        ends = ends_of(frame)
        delay = self._delays.get(ends)
        if delay is None:  # its rule went while it was on its way here
            return now_s
        through_s = now_s
        if delay.rate_kb_s:
            through_s = max(now_s, self._sent_s.get(ends, 0.0)) + len(frame) / (
                delay.rate_kb_s * 1000
            )
            self._sent_s[ends] = through_s
        latency_ms = delay.latency_ms + rng.uniform(-delay.jitter_ms, delay.jitter_ms)
        due_s = max(through_s + max(0.0, latency_ms) / 1000, self._last_s.get(ends, 0.0))
        self._last_s[ends] = due_s
        return due_s

    def departed(self, frame: bytes) -> None:
        self.waiting_bytes -= len(frame)
        assert self.waiting_bytes >= 0


def ends_of(frame: bytes) -> Ends:
    """Return source and target of an Ethernet frame with IPv4; two empty texts of a shorter one."""
    addresses = frame[_ADDRESSES]
    if len(addresses) < 8:
        return "", ""
    return socket.inet_ntoa(addresses[:4]), socket.inet_ntoa(addresses[4:])
