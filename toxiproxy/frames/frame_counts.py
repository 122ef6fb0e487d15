"""The frames of one proxy, counted for `GET /proxies/{name}/frames`.

`passed` counts what left the proxy by stream, kind and code; a `ToxicTally` what one toxic saw and
what it did something to. A probe that must show that a fault took effect reads `affected`.

Counts outlive the connections, and a toxic's tally outlives the toxic until another of that name is
added. Invariant: at most 512 different codes and 256 tallies are held; a code beyond is counted as
one that could not be decoded, and the oldest tally goes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

__all__ = ["FrameCounts", "ToxicTally"]

_CODES_MAX: Final = 512
_TALLIES_MAX: Final = 256


class ToxicTally:
    """Counts of what one toxic has done on all connections since it was added.

    `foreign_count` counts directions of connections that it passed on untouched, since they carry
    no frames.
    """

    __slots__ = ("affected", "affected_count", "foreign_count", "seen", "stream", "type_name")

    def __init__(self, type_name: str, stream: str) -> None:
        self.type_name = type_name
        self.stream = stream
        self.seen: Counter[int | None] = Counter()
        self.affected: Counter[int | None] = Counter()
        self.affected_count = 0
        self.foreign_count = 0

    def note_seen(self, code: int | None) -> None:
        """Count a frame that reached the toxic."""
        self.seen[_bounded(code, self.seen)] += 1

    def note_affected(self, code: int | None) -> None:
        """Count a frame that the toxic changed, held back, repeated or dropped."""
        self.affected[_bounded(code, self.affected)] += 1
        self.affected_count += 1


class FrameCounts:
    """The counts of one proxy; `on_untouched` gets toxic and stream of a foreign connection."""

    def __init__(self, on_untouched: Callable[[str, str], None] | None = None) -> None:
        self._on_untouched = on_untouched
        self._passed: Counter[tuple[str, str, int | None]] = Counter()
        self._foreign: Counter[str] = Counter()
        self._tallies: dict[str, ToxicTally] = {}

    def note_passed(self, stream: str, kind: str, code: int | None) -> None:
        """Count a frame that left the proxy: a request, a response or an unreadable one."""
        key = (stream, kind, code)
        if key not in self._passed and len(self._passed) >= _CODES_MAX:
            key = (stream, kind, None)
        self._passed[key] += 1

    def note_foreign(self, stream: str) -> None:
        """Count one direction of a connection that carries no frames."""
        self._foreign[stream] += 1

    def note_untouched(self, toxic: str, stream: str) -> None:
        """Count a foreign stream that a toxic met, and report it."""
        if toxic in self._tallies:
            self._tallies[toxic].foreign_count += 1
        if self._on_untouched is not None:
            self._on_untouched(toxic, stream)

    def begin(self, toxic: str, type_name: str, stream: str) -> None:
        """Begin a tally for a toxic that is added."""
        self._tallies.pop(toxic, None)
        self._tallies[toxic] = ToxicTally(type_name, stream)
        if len(self._tallies) > _TALLIES_MAX:
            del self._tallies[next(iter(self._tallies))]

    def tally(self, toxic: str, type_name: str, stream: str) -> ToxicTally:
        """Return the tally of a toxic; one that was never begun begins here."""
        if toxic not in self._tallies:
            self.begin(toxic, type_name, stream)
        return self._tallies[toxic]

    def to_json(self) -> dict[str, object]:
        """Return the body of the answer; a code of null could not be decoded or matched."""
        return {
            "passed": [
                {"stream": stream, "kind": kind, "code": code, "count": count}
                for (stream, kind, code), count in sorted(
                    self._passed.items(), key=lambda item: (*item[0][:2], _order(item[0][2]))
                )
            ],
            "toxics": [
                {
                    "name": name,
                    "type": tally.type_name,
                    "stream": tally.stream,
                    "foreign": tally.foreign_count,
                    "codes": [
                        {"code": code, "seen": seen, "affected": tally.affected[code]}
                        for code, seen in sorted(
                            tally.seen.items(), key=lambda item: _order(item[0])
                        )
                    ],
                }
                for name, tally in sorted(self._tallies.items())
            ],
            "foreign": dict(sorted(self._foreign.items())),
        }


def _order(code: int | None) -> tuple[bool, int]:
    return code is not None, code or 0


def _bounded(code: int | None, counts: Counter[int | None]) -> int | None:
    return code if code in counts or len(counts) < _CODES_MAX else None
