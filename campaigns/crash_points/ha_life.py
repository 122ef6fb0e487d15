"""One life of the store of a master or a slave, from a start to a crash, and what it has promised.

`HaLife` does with a `HaStore`, its `CommitLog` and its snapshots what `broker.ha.engine`,
`broker.ha.flusher`, `broker.ha.state_keeper` and `broker.ha.master_link` do, in their order, told
by a script instead of by clients and a master. It is tried as `StoreLife` is (`exploration`).

`HaPromise` is what a start must find: entries that were claimed durable, where the log begins,
snapshots. While an action changes one of them, the weaker of both holds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from broker.entry.payload import encode_header, encode_table
from broker.ha.commit_log import CommitLog, Standing
from broker.ha.config import HaConfig
from broker.ha.framing import TERM
from broker.ha.state_keeper import StateKeeper
from broker.ha.store import HaStore
from campaigns.crash_points.store_life import BrokenPromiseError
from campaigns.crash_points.store_scripts import Action, Script
from chaos.sim.machine.disk import SimDisk
from raft.membership import Member, encode_membership, make_membership
from raft.messages import Index, LogBase, NodeId
from raft.replicated_log import Snapshot
from raft.snapshots.snapshot import SnapshotHeader

__all__ = ["HA_AFTERLIFE", "HA_SCRIPTS", "HaLife", "HaPromise", "drawn_ha_script"]

_NODE: Final = NodeId("n0")
_FILE_SIZE: Final = 4_096  # six entries or so
_FOLDER: Final = "ha/commitlog"
_MEMBERS: Final = encode_membership(make_membership([Member(node_id=_NODE)]))
_BEGIN: Final = LogBase(index=0, term=TERM, position=0, chain=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HaPromise:
    """`log`: the places behind its entries from `base` on, durable or not; durable ones up to
    `claimed`. `ever`: of all entries that anybody wrote. `cutting_to`: the log may end there."""

    base: LogBase = _BEGIN
    log: tuple[LogBase, ...] = ()
    claimed: LogBase = _BEGIN
    ever: frozenset[LogBase] = frozenset()
    snapshots: frozenset[Index] = frozenset()
    cutting_to: LogBase | None = None

    def key(self) -> object:
        return self.base, self.claimed, self.snapshots, self.cutting_to, self.log

    @property
    def end(self) -> LogBase:
        return self.log[-1] if self.log else self.base

    @property
    def least(self) -> LogBase:
        """The place up to which a start has to find the log: a cut that has begun may take durable
        entries, and makes none durable."""
        if self.cutting_to is None:
            return self.claimed
        return min(self.claimed, self.cutting_to, key=lambda place: place.position)


class _State:
    """A state machine that keeps nothing: its snapshots are told from others by their index."""

    needs_indexing = False

    def __init__(self) -> None:
        self.restored: Index = 0

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        if b"".join(chunks) != _state_at(index):
            raise BrokenPromiseError(f"the snapshot at {index} holds another state")
        self.restored = index
        return lambda: None

    def trim(self, position: int) -> None:
        """Nothing is derived."""

    def sync_derived(self) -> None:
        """Nothing is derived."""

    def capture(self) -> Snapshot:
        raise AssertionError("a script says when")


def _state_at(index: Index) -> bytes:
    return f"state at {index}".encode() * 3


class HaLife:
    """One incarnation over `disk`; `promise` grows with what it does."""

    def __init__(
        self, disk: Any, directory: Path, past: HaPromise, *, name: str, in_kernel: bool = False
    ) -> None:
        assert not in_kernel, "who carries a fsync out is nothing to the log"
        self.disk = disk
        self.promise = past
        self.doing = "start"
        self.actions: Counter[str] = Counter()
        self._directory = directory
        self._rng = random.Random(name)
        self._store: HaStore | None = None
        self._may_cut = False

    # --- the store -----------------------------------------------------------------------------

    def start(self) -> None:
        """As `HaLog.start`; then what was found is compared with what was promised."""
        config = HaConfig(
            group="g",
            node_id=_NODE,
            peers={_NODE: "127.0.0.1:1"},
            master=_NODE,
            store=self._directory,
            segment_size_bytes_max=_FILE_SIZE,
        )
        self._store = store = HaStore(config, self.disk)
        state = _State()
        self._keeper = StateKeeper(
            store.log,
            store.snapshots,
            state,  # type: ignore[arg-type]  # what a start asks of it
            interval_size_bytes=1,
            membership=_MEMBERS,
            on_written=lambda *_: None,
        )
        newest = self._keeper.newest_of_this_log()
        if newest is not None:
            self._keeper.restore(newest)
        self._compare(store.log, state.restored)
        log = store.log
        self.promise = replace(
            self.promise,
            base=log.begin,
            log=tuple(one.after for one in log.entries_behind(log.begin)),
            claimed=log.end,
            snapshots=frozenset(place.index for place in self._keeper._retained),
            cutting_to=None,
        )

    def end(self) -> None:
        """The process is gone: its lock with it."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    @property
    def log(self) -> CommitLog:
        assert self._store is not None
        return self._store.log

    def _compare(self, log: CommitLog, restored: Index) -> None:
        promise = self.promise
        found = [one.after for one in log.entries_behind(log.begin)]
        unknown = [place for place in found if place not in promise.ever]
        if unknown:
            raise BrokenPromiseError(f"nobody wrote entry {unknown[0].index}")
        least = promise.least
        if log.end.index < least.index:
            raise BrokenPromiseError(f"entries up to {least.index}, found {log.end.index}")
        if log.begin.index < promise.base.index:
            raise BrokenPromiseError(f"the log begins behind {log.begin}, not {promise.base}")
        if log.begin.index > max(promise.base.index, min(promise.snapshots, default=0)):
            raise BrokenPromiseError(f"the log begins behind {log.begin}: no snapshot is left")
        if log.begin.index > restored:
            raise BrokenPromiseError(f"the log begins behind {log.begin}, restored {restored}")
        retained = {index for index in promise.snapshots if index <= least.index}
        missing = retained - {place.index for place in self._keeper._retained}
        if missing:
            raise BrokenPromiseError(f"the snapshots {missing} are gone, or not used")
        self._compare_tail(log)

    def _compare_tail(self, log: CommitLog) -> None:
        """Behind the log's end its file holds zeros, and has its size."""
        begin = log.end.position - log.end.position % _FILE_SIZE
        path = f"{_FOLDER}/{begin:020d}"
        if path in self.disk.paths():
            content = self.disk.content(path)
            if len(content) != _FILE_SIZE or any(content[log.end.position - begin :]):
                raise BrokenPromiseError(f"{path} holds more than the log")

    # --- the disk asks -------------------------------------------------------------------------

    def guard(self, path: str, place: int, data: bytes | None) -> None:
        """No durable byte of an entry is written again, and none is cut off (no `data`) but by a
        slave that cuts its log."""
        folder, _, name = path.rpartition("/")
        if folder != _FOLDER or self._may_cut:
            return
        position = int(name) + place
        least = self.promise.least  # a start ends a cut
        if position < least.position:
            raise BrokenPromiseError(
                f"{path} is {'cut' if data is None else 'written'} at {position}, durable up to "
                f"{least.position}"
            )

    def before_operation(self) -> None:
        """Nothing goes on beside: the loop alone is at the log."""

    # --- actions -------------------------------------------------------------------------------

    def play(self, script: Script) -> None:
        for action in script.actions:
            self.doing = action.name
            self.actions[action.name] += 1
            getattr(self, f"_{action.name}")(action)
        self.doing = "idle"

    def _append(self, action: Action) -> None:
        """As `HaLog.propose`."""
        for size in action.sizes:
            payload = self._payload(size)
            if not self.log.fits(len(payload)):
                self._roll()
            self._will_write(_places(self.log.end, [payload]))
            self.log.append(payload)

    def _roll(self) -> None:
        self.log.roll()
        self.promise = replace(self.promise, claimed=self._known(self.log.durable))

    def _fsync(self, action: Action) -> None:
        """As `Flusher`: what is appended while it is under way is not claimed."""
        log = self.log
        end, file = log.end, log.last_file
        if action.sizes:
            self._append(action)
        if file is not None:
            file.sync()
            log.claim(end)
            if end.position > self.promise.claimed.position:
                self.promise = replace(self.promise, claimed=end)

    def _receive(self, action: Action) -> None:
        """As `MasterLink`: the bytes of a master come in pieces, the last one perhaps without its
        end, and then another connection begins."""
        log = self.log
        data, places = _bytes_of_master(log.end, [self._payload(size) for size in action.sizes])
        self._will_write(places)
        if action.cuts:
            del data[-1][-action.cuts :]
        for piece in data:
            for chunk in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
                if chunk:
                    log.receive(bytes(chunk))
                while log.take() is not None:
                    pass
                self.promise = replace(self.promise, claimed=self._known(log.durable))
        if log.raw_end > log.end.position:
            log.truncate(log.end)
        self.promise = replace(
            self.promise, log=tuple(p for p in self.promise.log if p.index <= log.end.index)
        )

    def _cut(self, action: Action) -> None:
        """As `MasterLink._cut`: so many entries go, and the node begins anew."""
        places = [self.promise.base, *self.promise.log]
        place = places[max(0, len(places) - 1 - action.cuts)]
        if place.position <= self.log.begin.position:
            return
        self._may_cut = True
        self.promise = replace(self.promise, cutting_to=place)
        self.log.truncate(place)
        retained = tuple(one for one in self.promise.log if one.index <= place.index)
        self.promise = replace(
            self.promise,
            log=retained,
            claimed=min(self.promise.claimed, place, key=lambda one: one.position),
            snapshots=frozenset(n for n in self.promise.snapshots if n <= place.index),
            cutting_to=None,
        )
        self._may_cut = False
        self._begin_again()

    def _snapshot(self, action: Action) -> None:
        """As `StateKeeper.run`."""
        log, files, index = self.log, self._opened.snapshots, self.log.end.index
        if index <= max(self.promise.snapshots, default=0):
            return
        self._fsync(Action(name="fsync"))
        header = SnapshotHeader(last=log.end, config_index=0, membership=_MEMBERS)
        files.write(header, iter([_state_at(index)]))
        retained = frozenset(sorted({*self.promise.snapshots, index})[-2:])
        self.promise = replace(self.promise, snapshots=retained)
        files.retain(retained)
        self._keeper.newest_of_this_log()

    @property
    def _opened(self) -> HaStore:
        assert self._store is not None
        return self._store

    def _drop(self, action: Action) -> None:
        """As `HaLog.retain_from`: retention, down to the older of two snapshots."""
        self.log.drop_before(self._keeper.safe_position)
        begin = self.log.begin
        retained = tuple(one for one in self.promise.log if one.index > begin.index)
        self.promise = replace(self.promise, base=begin, log=retained)

    def _restart(self, action: Action) -> None:
        """A clean stop, as `HaLog.stop`, or the process killed between two actions."""
        if action.cuts:
            self.log.sync()
            self.promise = replace(self.promise, claimed=self._known(self.log.durable))
            self._snapshot(action)
            self._opened.write_checkpoint(self.log.end.index, clean=True)
        self._begin_again()

    def _begin_again(self) -> None:
        self.end()
        self.disk.process_crash()
        self.start()

    # --- entries -------------------------------------------------------------------------------

    def _payload(self, size: int) -> bytes:
        table = encode_table(self._rng.randrange(1 << 40), [], [])
        return encode_header(len(table)) + table + self._rng.randbytes(size)

    def _will_write(self, places: list[LogBase]) -> None:
        self.promise = replace(
            self.promise,
            log=(*self.promise.log, *places),
            ever=self.promise.ever | frozenset(places),
        )

    def _known(self, durable: LogBase) -> LogBase:
        """Return the place behind the last entry that ends at or before `durable`, which may stand
        behind a BLANK."""
        places = [self.promise.base, *self.promise.log]
        return max(
            (one for one in places if one.position <= durable.position),
            key=lambda one: one.position,
            default=self.promise.claimed,
        )


def _bytes_of_master(end: LogBase, payloads: list[bytes]) -> tuple[list[bytearray], list[LogBase]]:
    """Return what a master pushes behind `end`, a piece for each file, and the places of its
    entries: it has the same log up to there, on a disk of its own."""
    disk = SimDisk(random.Random(0))
    disk.make_directory("ha")
    log = CommitLog(disk, _FOLDER, file_size=_FILE_SIZE)
    # Its files before the one that `end` is in are of no interest.
    begin = end.position - end.position % _FILE_SIZE
    place = LogBase(index=end.index, term=end.term, position=begin, chain=end.chain)
    log.begin = log.durable = log._last_begin = place
    log.end, log.raw_end = end, end.position
    standings: list[Standing] = []
    for payload in payloads:
        if not log.fits(len(payload)):
            log.roll()
        standings.append(log.append(payload))
    pieces, at = [], end.position
    while at < log.end.position:
        chunk = bytearray(log.read_chunk(at, _FILE_SIZE))
        pieces.append(chunk)
        at += len(chunk)
    return pieces, [one.after for one in standings]


def _places(end: LogBase, payloads: list[bytes]) -> list[LogBase]:
    """Return the places behind entries of these payloads, appended behind `end`."""
    return _bytes_of_master(end, payloads)[1]


# --- scripts -----------------------------------------------------------------------------------


def _append(*sizes: int) -> Action:
    return Action(name="append", sizes=sizes)


def _receive(*sizes: int, lost: int = 0) -> Action:
    return Action(name="receive", sizes=sizes, cuts=lost)


def _fsync(*meanwhile: int) -> Action:
    return Action(name="fsync", sizes=meanwhile)


_SNAPSHOT: Final = Action(name="snapshot")
_DROP: Final = Action(name="drop")
_KILL: Final = Action(name="restart")
_STOP: Final = Action(name="restart", cuts=1)
_MANY: Final = (900, 900, 900)

HA_AFTERLIFE: Final = Script(
    name="afterlife of a master",
    actions=(_append(300), _fsync(1_500), _append(1_800, 10), _fsync()),
)
"""What a store does that a crash has left: it grows over the end of a file."""

HA_SCRIPTS: Final = (
    Script(name="a master", actions=(_append(0, 200), _fsync(), _append(*_MANY), _fsync(50))),
    Script(
        name="fsyncs over the end of a file",
        actions=(_append(900, 900), _fsync(*_MANY), _append(900), _fsync(900, 900), _fsync()),
    ),
    Script(
        name="retention of a master",
        actions=(
            *(_append(*_MANY), _SNAPSHOT, _append(*_MANY), _SNAPSHOT, _DROP),
            *(_append(*_MANY), _SNAPSHOT, _DROP, _append(10), _fsync()),
        ),
    ),
    Script(
        name="a slave",
        actions=(
            *(_receive(100, 900), _fsync(), _receive(*_MANY, lost=30), _receive(*_MANY)),
            *(_fsync(), _receive(50, lost=200), _receive(50), _fsync()),
        ),
    ),
    Script(
        name="a slave that is cut",
        actions=(
            *(_receive(900, 900), _fsync(), _receive(*_MANY), _fsync()),
            *(Action(name="cut", cuts=4), _receive(*_MANY), _fsync()),
            *(Action(name="cut", cuts=1), _receive(900), _fsync()),
        ),
    ),
    Script(
        name="a slave that is cut below its snapshot",
        actions=(
            *(_receive(*_MANY), _SNAPSHOT, _receive(*_MANY), _SNAPSHOT),
            *(Action(name="cut", cuts=2), _receive(*_MANY), _fsync(), _SNAPSHOT),
        ),
    ),
    Script(
        name="stops and kills of a master",
        actions=(_append(100), _STOP, _append(*_MANY), _KILL, _append(*_MANY), _STOP),
    ),
)

_WEIGHTS: Final = {
    "append": 4,
    "receive": 3,
    "fsync": 5,
    "cut": 1,
    "snapshot": 2,
    "drop": 1,
    "restart": 1,
}


def drawn_ha_script(seed: int, length: int = 9) -> Script:
    """Any actions, in any order."""
    rng = random.Random(seed)
    return Script(name=f"ha seed {seed}", actions=tuple(_draw(rng) for _ in range(length)))


def _draw(rng: random.Random) -> Action:
    (name,) = rng.choices(*zip(*_WEIGHTS.items(), strict=True))
    sizes: tuple[int, ...] = ()
    if name in {"append", "receive"} or (name == "fsync" and rng.random() < 0.4):
        sizes = tuple(rng.choice((0, 40, 300, 900, 2_000)) for _ in range(rng.randint(1, 3)))
    return Action(name=name, sizes=sizes, cuts=rng.choice((0, 1, 2, 20)))
