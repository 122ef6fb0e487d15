"""Entries of a log as arrays, and the bytes that are none.

Place in the data path: readers of files (`verify.export.segment_entries`,
`verify.export.rocketmq.log_files`) make them, `verify.export.messages.log_rows` turns them into
rows.

Invariant: positions are those in the log, `start` and `end` those in the bytes of one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["KIND_CONFIG", "KIND_DATA", "Damage", "Entries"]

KIND_CONFIG: Final = 1
KIND_DATA: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes at `position` that are not the entry that belongs there, whose index is `index`."""

    index: int
    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Sound entries, one element per array each.

    `order` counts entries and damages together; `position` is that of the header in the log; the
    payload lies in the segment's bytes from `start` to `end`.
    """

    order: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    term: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]
    chain: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def part(self, first: int, end: int) -> Entries:
        return Entries(
            **{name: getattr(self, name)[first:end] for name in Entries.__dataclass_fields__}
        )
