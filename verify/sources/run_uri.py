"""The name of a run: a path of this machine, or the URI of a Hadoop file system.

Place in the data path: between the command line and `verify.run`. A URI is recognised as Hadoop's
own tools do: a scheme, a colon and a slash (`hdfs://host/runs/x`, `s3a://bucket/x`, `file:///x`).
Its characters stand for themselves, as they do for `hadoop fs`: nothing is decoded.

Invariant: imports nothing that is slow to load, since every command parses its arguments with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["RunUri", "run_place"]

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True)
class RunUri:
    """The folder of a run in a file system that Hadoop reaches."""

    text: str

    def of(self, name: str) -> str:
        """Return the URI of the run's file `name`."""
        return f"{self.text.rstrip('/')}/{name}"

    def __str__(self) -> str:
        return self.text


def run_place(text: str) -> Path | RunUri:
    """Parse the name of a run. A path whose first part ends in a colon needs a leading `./`."""
    return RunUri(text) if _URI.match(text) else Path(text)
