"""What of a campaign is done, in a file that survives any kill: it goes on where it was ended.

Place in the data path: `chaos.campaign.campaign` adds a line once a run is judged and cut to what
stays, and another once a failure is minimised. `progress.jsonl`: a head, then one row a line.

Invariants: a row that was added is on disk before `add` returns; a line that a kill tore in two is
cut off when the file is opened again; rows of another plan, or of other sources, are never mixed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from chaos.campaign.minimise import Minimised
from chaos.campaign.outcome import RunOutcome

__all__ = ["PROGRESS_FILE", "Progress", "ProgressError", "source_digest"]

FORMAT: Final = 1
PROGRESS_FILE: Final = "progress.jsonl"
_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = (
    *("broker", "chaos", "client", "ledgermq", "namesrv", "raft", "remoting", "toxiproxy"),
    "verify",
)


class ProgressError(Exception):
    """The folder belongs to another campaign, or to nobody's; the text says which."""


def source_digest(root: Path = _ROOT) -> str:
    """Return a digest of the program's text: results of two programs are not one campaign's."""
    digest = hashlib.sha256()
    for package in _PROGRAM:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in {".py", ".sql"}:
                text = path.read_bytes()
                digest.update(f"{path.relative_to(root)} {len(text)}\n".encode() + text)
    return digest.hexdigest()


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="head"):
    format: int
    plan: str
    sources: str


_ROW: Final = msgspec.json.Decoder(RunOutcome | Minimised)
_HEAD: Final = msgspec.json.Decoder(_Head)


class Progress:
    """The progress of one campaign. `runs` and `minimised` are by the run's name."""

    def __init__(self, folder: Path, *, plan: str, sources: str) -> None:
        """Read what there is, or begin. Raises ProgressError, OSError."""
        self._path = folder / PROGRESS_FILE
        self.runs: dict[str, RunOutcome] = {}
        self.minimised: dict[str, Minimised] = {}
        head = _Head(format=FORMAT, plan=plan, sources=sources)
        if self._path.exists():
            self._read(head)
        if not self._path.exists() or self._path.stat().st_size == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self._append(msgspec.json.encode(head))

    def add(self, row: RunOutcome | Minimised) -> None:
        """Add a row, durably. Raises OSError."""
        self._append(msgspec.json.encode(row))
        self._take(row)

    def _take(self, row: RunOutcome | Minimised) -> None:
        if isinstance(row, RunOutcome):
            self.runs[row.run] = row
        else:
            self.minimised[row.run] = row

    def _append(self, line: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, wanted: _Head) -> None:
        text = self._path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(self._path, len(whole))
        lines = whole.splitlines()
        if not lines:
            return
        try:
            head = _HEAD.decode(lines[0])
            rows = [_ROW.decode(line) for line in lines[1:]]
        except msgspec.DecodeError as error:
            raise ProgressError(f"{self._path} is no progress of a campaign: {error}") from error
        if head != wanted:
            what = "by another plan" if head.plan != wanted.plan else "with other sources"
            raise ProgressError(
                f"{self._path.parent} holds a campaign that was begun {what}, and results of both"
                " would prove nothing together"
            )
        for row in rows:
            self._take(row)
