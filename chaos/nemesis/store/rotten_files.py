"""Rotten files: a torn tail, a flipped bit, a zeroed page, a stale block, a file that is gone.

Place in the data path: edits for `chaos.nemesis.store.store_fault`, in the log of a killed node.
The node must find the damage, serve none of it, and be repaired from its peers (decision 6).

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18) section 2; the drill
`campaigns.drills.corruption`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from chaos.nemesis.base import FaultNotPossibleError, FaultSpec
from chaos.nemesis.store.store_fault import PAGE_SIZE, Edit, StoreFault, data_end, log_files
from chaos.systems.base import Part, StoreFiles

__all__ = ["SPECS"]

# The front of the log, which was committed long ago: peers have it.
COMMITTED_SHARE: Final = 0.7
ROTTEN_BITS: Final = 8  # of a derived file
_DERIVED: Final = ("consumequeue/", "index/")
_WRITTEN: Final = re.compile(rb"[^\0]")


class _LogFault(StoreFault):
    def _segment(self, files: StoreFiles, *, last: bool = False) -> str:
        names = log_files(files)
        if not names:
            raise FaultNotPossibleError(f"the log of {self._nodes[0]} holds nothing yet")
        return names[-1] if last else self._context.rng.choice(names)

    def _page(self, files: StoreFiles, name: str) -> int:
        """Return the offset of a page in the committed part."""
        pages = int(data_end(files, name) * COMMITTED_SHARE) // PAGE_SIZE
        if not pages:
            raise FaultNotPossibleError(f"{name} of {self._nodes[0]} holds less than a page")
        return self._context.rng.randrange(pages) * PAGE_SIZE


class TornTail(_LogFault):
    """Zeroes the last bytes of the log, as a write that did not arrive whole."""

    def _damage(self, files: StoreFiles) -> Edit:
        name = self._segment(files, last=True)
        end = data_end(files, name)
        begin = max(0, end - int(self._context.params["bytes"]))
        before = files.read(name, begin, end - begin)
        files.write(name, begin, bytes(len(before)))
        # The peers may have replaced an end that was never committed.
        return Edit(
            name=name,
            offset=begin,
            before=before,
            text=f"the last {len(before)} bytes",
            repaired=False,
        )


class BitRot(_LogFault):
    """Flips one bit of the committed part."""

    def _damage(self, files: StoreFiles) -> Edit:
        name = self._segment(files)
        end = max(1, int(data_end(files, name) * COMMITTED_SHARE))
        at, bit = self._context.rng.randrange(end), self._context.rng.randrange(8)
        before = files.read(name, at, 1)
        files.write(name, at, bytes([before[0] ^ 1 << bit]))
        return Edit(name=name, offset=at, before=before, text=f"bit {bit} of byte {at}")


class ZeroedPage(_LogFault):
    """Zeroes a page of the committed part."""

    def _damage(self, files: StoreFiles) -> Edit:
        name = self._segment(files)
        at = self._page(files, name)
        before = files.read(name, at, PAGE_SIZE)
        files.write(name, at, bytes(PAGE_SIZE))
        return Edit(name=name, offset=at, before=before, text=f"the page at {at}")


class StaleBlock(_LogFault):
    """Puts a page in the place of another one, as a misdirected or lost write does."""

    def _damage(self, files: StoreFiles) -> Edit:
        name = self._segment(files)
        at, other = self._page(files, name), self._page(files, name)
        if at == other:
            other = at - PAGE_SIZE if at else at + PAGE_SIZE
        before = files.read(name, at, PAGE_SIZE)
        files.write(name, at, files.read(name, other, PAGE_SIZE).ljust(PAGE_SIZE, b"\0"))
        text = f"the page at {at} is the one at {other}"
        return Edit(name=name, offset=at, before=before, text=text)


class LostFile(_LogFault):
    """Removes a segment of the log."""

    def _damage(self, files: StoreFiles) -> Edit:
        name = self._segment(files)
        before = files.read(name, 0, int(data_end(files, name) * COMMITTED_SHARE))
        files.remove(name)
        return Edit(name=name, offset=0, before=before, text="all")


class _DerivedFault(StoreFault):
    def _names(self, files: StoreFiles) -> list[str]:
        """Return the ConsumeQueue and index files. Raises FaultNotPossibleError: there is none."""
        names = [name for name in files.names() if name.startswith(_DERIVED)]
        if not names:
            raise FaultNotPossibleError(f"{self._nodes[0]} has no derived file yet")
        return names


class RottenDerived(_DerivedFault):
    """Flips bits of every ConsumeQueue and index file, in what was written. A start must find that
    and build them anew from the log."""

    def _damage(self, files: StoreFiles) -> Edit:
        edit: Edit | None = None
        names, rng = self._names(files), self._context.rng
        for name in names:
            # Most of an index file are places of keys that never came: what is there is written.
            data = files.read(name, 0, data_end(files, name))
            written = [match.start() for match in _WRITTEN.finditer(data)]
            for at in rng.sample(written, min(len(written), ROTTEN_BITS)):
                before, bit = data[at : at + 1], rng.randrange(8)
                files.write(name, at, bytes([before[0] ^ 1 << bit]))
                text = f"bit {bit} of byte {at}, and others of {len(names)} files,"
                edit = edit or Edit(name=name, offset=at, before=before, text=text, repaired=False)
        if edit is None:
            raise FaultNotPossibleError(f"the derived files of {self._nodes[0]} are empty")
        return edit


class LostDerived(_DerivedFault):
    """Removes every ConsumeQueue and index file, which a start must build anew from the log."""

    def _damage(self, files: StoreFiles) -> Edit:
        names = self._names(files)
        first = files.read(names[0], 0, data_end(files, names[0]))
        for name in names:
            files.remove(name)
        # Built again on demand and from another beginning, so its bytes need not be the same.
        text = f"all, and {len(names) - 1} other files,"
        return Edit(name=names[0], offset=0, before=first, text=text, repaired=False)


_PARTS: Final = frozenset({Part.PROCESSES, Part.STORES, Part.REPAIRS})
_PROBE: Final = "bytes read back differ while the process is gone; healed when it serves"
_REPAIRED: Final = f"{_PROBE} and the bytes are the former ones"
_TARGET: Final = {"target": ("leader", "follower", "any")}

_rotten = partial(
    FaultSpec, probe=_REPAIRED, parts=_PARTS, parameters={"target": "follower"}, choices=_TARGET
)

SPECS: Final[tuple[FaultSpec, ...]] = (
    _rotten(
        name="torn-tail",
        summary="the last bytes of a killed node's log are zeros: a write that was torn",
        probe=_PROBE,
        make=TornTail,
        seen_elsewhere="Jepsen, FoundationDB, TigerBeetle",
        parameters={"target": "follower", "bytes": 100},
    ),
    _rotten(
        name="bit-rot",
        summary="one bit in the committed part of a killed node's log is flipped",
        make=BitRot,
        seen_elsewhere="Jepsen, TigerBeetle",
    ),
    _rotten(
        name="zeroed-page",
        summary="a page in the committed part of a killed node's log is zeros",
        make=ZeroedPage,
        seen_elsewhere="TigerBeetle",
    ),
    _rotten(
        name="stale-block",
        summary="a page of a killed node's log holds what belongs elsewhere",
        make=StaleBlock,
        seen_elsewhere="TigerBeetle",
    ),
    _rotten(
        name="lost-file",
        summary="a segment of a killed node's log is gone",
        make=LostFile,
        seen_elsewhere="Jepsen",
    ),
    _rotten(
        name="rotten-derived-files",
        summary="bits of each ConsumeQueue and index file of a killed node are flipped",
        probe=_PROBE,
        parts=_PARTS - {Part.REPAIRS},
        make=RottenDerived,
        seen_elsewhere="this project",
    ),
    _rotten(
        name="lost-derived-files",
        summary="ConsumeQueues and indexes of a killed node are gone",
        probe=_PROBE,
        parts=_PARTS - {Part.REPAIRS},  # each node makes them of its own log
        make=LostDerived,
        seen_elsewhere="this project",
    ),
)
