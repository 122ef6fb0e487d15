"""A record of the seeds that have passed, by sources: a campaign of hours resumes where it ended.

Place in the data path: `campaign` adds each seed that passed and its counters; `command` skips the
recorded seeds. The file is JSON, written by rename after each few seeds.

Invariants: a record is valid for one text of the sources that a seed runs (the product's and the
simulator's) and one choice of nodes and kind; for any other it is empty. A seed that failed is
never in it. A record belongs to one campaign at a time: if two write to it at once, the later write
wins, so that seeds are run again, never counted without having passed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chaos.sim.seed.coverage import Coverage

__all__ = ["RecordError", "SeedRecord", "source_digest"]

_ROOT: Final = Path(__file__).resolve().parents[3]
_SIMULATED: Final = ("raft", "remoting", "broker", "namesrv", "client", "chaos/sim")
_AROUND: Final = frozenset(
    {"chaos/sim/campaign/command.py", "chaos/sim/campaign/record.py"}
)  # no seed runs them


class RecordError(Exception):
    """The file is no record of a campaign; the text says why."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sources: str
    nodes: int | None
    kind: str | None
    passed: list[tuple[int, int]]  # ranges with both ends included, in order
    coverage: dict[str, int]
    cpu_s: float


def source_digest(root: Path = _ROOT) -> str:
    """Return the SHA-256 of the names and bytes of all modules that a seed runs."""
    digest = hashlib.sha256()
    for folder in _SIMULATED:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name in _AROUND:
                continue
            text = path.read_bytes()
            digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


class SeedRecord:
    """The record file. `begun_anew`: the file was for other sources, nodes or kinds."""

    def __init__(self, path: Path, *, nodes: int | None, kind: str | None) -> None:
        """Read the file, if there is one. Raises RecordError, OSError."""
        self._path = path
        self._file = _File(
            sources=source_digest(), nodes=nodes, kind=kind, passed=[], coverage={}, cpu_s=0.0
        )
        found = _read(path)
        wanted = (self._file.sources, nodes, kind)
        self.begun_anew = found is not None and (found.sources, found.nodes, found.kind) != wanted
        if found is not None and not self.begun_anew:
            self._file = found
        self._passed = {
            seed for first, last in self._file.passed for seed in range(first, last + 1)
        }
        self._total = Coverage()
        self._total.add(self._file.coverage)

    @property
    def coverage(self) -> Mapping[str, int]:
        """The summed counters of all recorded seeds."""
        return self._total.counts

    @property
    def kind(self) -> str | None:
        return self._file.kind

    @property
    def sources(self) -> str:
        return self._file.sources

    def missing(self, seeds: Iterable[int]) -> list[int]:
        return [seed for seed in seeds if seed not in self._passed]

    def passed(self, seeds: Sequence[int]) -> int:
        return len(seeds) - len(self.missing(seeds))

    def add(self, seeds: Iterable[int], counts: Mapping[str, int], cpu_s: float) -> None:
        """Record that these seeds have passed. Raises OSError."""
        self._passed.update(seeds)
        self._total.add(dict(counts))
        self._file.cpu_s += cpu_s
        self._file.passed = _ranges(self._passed)
        self._file.coverage = {name: count for name, count in self._total.counts.items() if count}
        text = msgspec.json.format(msgspec.json.encode(self._file), indent=1)
        aside = self._path.with_name(f"{self._path.name}.tmp")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(text + b"\n")
        aside.replace(self._path)


def _read(path: Path) -> _File | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise RecordError(f"{path} is no record of a campaign: {error}") from error


def _ranges(seeds: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if found and found[-1][1] == seed - 1:
            found[-1] = (found[-1][0], seed)
        else:
            found.append((seed, seed))
    return found
