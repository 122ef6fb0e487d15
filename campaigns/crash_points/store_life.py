"""One life of a real store, from a start to a crash, and what it has promised by then.

`StoreLife` does with a `NodeStore`, a `GroupCommit`, a `SegmentLog`, `SnapshotFiles` and an
`InstallReceiver` what `raft.node.core_shell`, `raft.node.node` and `raft.snapshots.snapshot_keeper`
do, in their order, told by a script instead of by peers. A round of fsync is begun by one action
and carried out by a later one; what the loop does meanwhile happens ahead of a given disk operation
of it. `in_kernel`: what wants the log alone is carried out without a thread, and nobody but the
script says when.

`Promise` is what a start must find after a crash: entries that were reported durable, term and
vote that messages may have left for, the log's beginning, snapshots. While an action changes one
of them, the weaker of both holds.

Over 500 lines, because the life of one store is one object: what its shell does, in which order,
and what must hold after each crash are read against one another.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaigns.crash_points.store_scripts import Action, Script
from chaos.sim.machine.disk import SimDisk
from chaos.sim.machine.sync_lock import SyncLock
from raft.config import RaftConfig
from raft.membership import Configuration, Member, encode_membership, make_membership
from raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Index,
    InstallSnapshot,
    LogBase,
    NodeId,
    Term,
)
from raft.node.group_commit import GroupCommit, SyncRound
from raft.node.node_config import NodeConfig
from raft.snapshots.install import InstallReceiver
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.store.node_store import NodeStore
from raft.store.restore import restore_newest

__all__ = ["BrokenPromiseError", "Promise", "StoreLife"]

_NODES = (NodeId("n0"), NodeId("n1"), NodeId("n2"))
_SEGMENT_SIZE_BYTES = 384  # four small entries
_MEMBERS = make_membership(Member(node_id=name) for name in _NODES)
_BEGIN = LogBase()
_NOBODY = HardState(current_term=0, voted_for=None)


class BrokenPromiseError(Exception):
    """A start found less than was promised before the crash, or a durable byte was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """`log`: its entries behind `base`, durable or not; durable ones up to `claimed`.

    `reported`: the further hard state that a message may have left for. `installing`: a log that
    begins there and holds nothing is as good. `protected_end`: no byte before it is written again.
    """

    base: LogBase = _BEGIN
    log: tuple[Entry, ...] = ()
    claimed: Index = 0
    reported: HardState = _NOBODY
    commit_index: Index = 0
    snapshots: frozenset[Index] = frozenset()
    installing: LogBase | None = None
    protected_end: int = 0
    store_id: str = ""
    ever: frozenset[tuple[Index, Term, bytes]] = frozenset()

    def key(self) -> object:
        durable = self.log[: max(0, self.claimed - self.base.index)]
        return (
            self.base,
            tuple((entry.index, entry.term) for entry in durable),
            self.claimed,
            self.reported,
            self.commit_index,
            self.snapshots,
            self.installing,
            self.protected_end,
        )

    @property
    def last_index(self) -> Index:
        return self.base.index + len(self.log)


class _State:
    """A state machine that keeps nothing: its snapshots are told from others by their index."""

    needs_indexing = False

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        if b"".join(chunks) != _state_at(index):
            raise BrokenPromiseError(f"the snapshot at {index} holds another state")
        return lambda: None

    def trim(self, position: int) -> None:
        """Nothing is derived."""


def _state_at(index: Index) -> bytes:
    return f"state at {index}".encode() * 3


class StoreLife:
    """One incarnation over `disk`; `promise` grows with what it does."""

    def __init__(
        self, disk: Any, directory: Path, past: Promise, *, name: str, in_kernel: bool = False
    ) -> None:
        self._in_kernel = in_kernel
        self._reports: list[Callable[[], None]] = []
        self.disk = disk
        self.promise = past
        self.doing = "start"
        self.actions: Counter[str] = Counter()
        self._directory = directory
        self._rng = random.Random(name)
        self._work: tuple[Callable[[], None], Callable[[BaseException | None], None]] | None = None
        self._meanwhile: list[tuple[int, Action]] = []
        self._countdown = 0
        self._late: list[Action] = []
        self._store: NodeStore | None = None
        self._states: dict[Index, HardState] = {}  # wanted when the entry was appended
        self._truncated_term = -1
        self._is_starting = True

    # --- the store -----------------------------------------------------------------------------

    def start(self) -> None:
        """As `RaftNode.start`; then what was found is compared with what was promised."""
        self._is_starting = True
        config = NodeConfig(
            group="g",
            raft=RaftConfig(node_id=_NODES[0], voters=_NODES),
            peers=dict.fromkeys(_NODES, "127.0.0.1:1"),
            listen="127.0.0.1:0",
            store=self._directory,
            secret=bytes(32),
            segment_size_bytes_max=_SEGMENT_SIZE_BYTES,
            log_cached_size_bytes=0,
        )
        self._store = store = NodeStore(config, self.disk)
        store.write_checkpoint(store.checkpoint.commit_index, 0, clean=False)
        restored = restore_newest(
            store.log,
            store.snapshots,
            _State(),  # what a start asks of it
            commit_index=store.checkpoint.commit_index,
        )
        self._compare(store)
        self._begin_with(store, restored.commit_index)
        if not store.identity.born:
            store.bear(b"roster")
        self.group_commit = GroupCommit(
            store.log, store.hard_state_file, self._on_round, self.carry_out
        )
        if self._in_kernel:
            store.log._sync_lock = SyncLock(store.log)  # type: ignore[assignment]  # as good
            self.disk.kernel = self
            store.open_syncs()
        self.receiver = InstallReceiver(store.snapshots, size_bytes_max=1 << 20)
        self._is_starting = False

    def end(self) -> None:
        """The process is gone: its lock with it."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    @property
    def store(self) -> NodeStore:
        assert self._store is not None
        return self._store

    def _compare(self, store: NodeStore) -> None:
        promise, log, state = self.promise, store.log, store.hard_state
        if promise.store_id not in {"", store.identity.store_id}:
            raise BrokenPromiseError("the store is another one")
        if log.damages:
            raise BrokenPromiseError(f"damaged: {log.damages[0]}")
        reported = promise.reported
        if state.current_term < reported.current_term or (
            state.current_term == reported.current_term
            and reported.voted_for not in {None, state.voted_for}
        ):
            raise BrokenPromiseError(f"{state} after {reported} was told")
        if log.last_term > state.current_term:
            raise BrokenPromiseError(f"term {state.current_term}, and an entry of {log.last_term}")
        found = log.entries(log.first_index, log.last_index + 1, 1 << 30)
        for entry in found:
            if (entry.index, entry.term, entry.payload) not in promise.ever:
                raise BrokenPromiseError(f"nobody wrote entry {entry.index} of term {entry.term}")
        if promise.installing is None or log.base != promise.installing:
            self._compare_log(log.base, found)
        for index in promise.snapshots:
            store.snapshots.verified(index)  # raises where it is gone, or not whole
        hint = store.checkpoint.commit_index
        if hint > promise.commit_index or hint > log.last_index:
            raise BrokenPromiseError(
                f"checkpoint {hint}, committed {promise.commit_index}, last {log.last_index}"
            )

    def _compare_log(self, base: LogBase, found: Sequence[Entry]) -> None:
        promise = self.promise
        if base.index < promise.base.index:
            raise BrokenPromiseError(f"the log begins behind {base}, not {promise.base}")
        by_index = {entry.index: entry for entry in found}
        for entry in promise.log:
            if base.index < entry.index <= promise.claimed and by_index.get(entry.index) != entry:
                raise BrokenPromiseError(
                    f"entry {entry.index} of term {entry.term} was durable, found "
                    f"{by_index.get(entry.index)}"
                )

    def _begin_with(self, store: NodeStore, commit_index: Index) -> None:
        """Everything that a start has kept counts as durable for the core."""
        log, past = store.log, self.promise
        found = log.entries(log.first_index, log.last_index + 1, 1 << 30)
        installed = past.installing is not None and log.base == past.installing
        self.promise = replace(
            past,
            base=log.base,
            log=tuple(found),
            claimed=log.last_index,
            reported=store.hard_state,
            commit_index=max(past.commit_index, commit_index, log.base.index if installed else 0),
            installing=None,
            protected_end=log.end_position,
            store_id=store.identity.store_id,
        )
        self._wanted = store.hard_state

    # --- the disk asks -------------------------------------------------------------------------

    def guard(self, path: str, place: int, data: bytes | None) -> None:
        """No durable byte of an entry is written again, none is cut off (no `data`); a start writes
        nothing but zeros."""
        directory, _, name = path.rpartition("/")
        if directory != "commitlog" or not name.isdecimal():
            return
        position = int(name) + place
        if position < self.promise.protected_end or (self._is_starting and data and any(data)):
            raise BrokenPromiseError(
                f"{path} is {'cut' if data is None else 'written'} at {position}, durable up to "
                f"{self.promise.protected_end}"
            )

    def before_operation(self) -> None:
        """What the loop does while another thread is at the disk."""
        if not self._meanwhile:
            return
        self._countdown += 1
        while self._meanwhile and self._meanwhile[0][0] <= self._countdown:
            _, action = self._meanwhile.pop(0)
            if self._waits_for_the_lock(action):
                self._late.append(action)
            else:
                meanwhile, self._meanwhile = self._meanwhile, []
                self._do(action)
                self._meanwhile = meanwhile

    def _waits_for_the_lock(self, action: Action) -> bool:
        """A truncation and the end of a segment wait for what another thread makes durable."""
        locks = (self.store.log._sync_lock, self.store.hard_state_file._lock)
        waits = action.cuts > 0 or self._would_roll(action)
        return waits and any(lock.locked() for lock in locks)

    def _would_roll(self, action: Action) -> bool:
        if not action.sizes:
            return False
        log = self.store.log
        used = log.end_position - log._files.position
        return used + sum(44 + size for size in action.sizes) > _SEGMENT_SIZE_BYTES

    # --- rounds --------------------------------------------------------------------------------

    def carry_out(
        self,
        steps: Sequence[Callable[[], object]],
        done: Callable[[BaseException | None], None],
    ) -> None:
        """A round was begun; an action carries it out."""

        def work() -> None:
            for step in steps:
                step()

        self._work = (work, done)

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """See `chaos.sim.machine.disk.Kernel`."""
        self._work = (work, lambda _: report())

    def report_soon(self, report: Callable[[], None]) -> None:
        """See `chaos.sim.machine.disk.Kernel`."""
        self._reports.append(report)

    def _report(self) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report()

    def _on_round(self, done: SyncRound, error: BaseException | None) -> None:
        assert error is None
        promise, log = self.promise, self.store.log
        if done.hard_state is not None:
            self._note_reported(done.hard_state)
        durable = done.durable
        if (
            durable is not None
            and durable.term > self._truncated_term
            and log.base.index < durable.index <= log.last_index
            and log.term(durable.index) == durable.term
        ):
            self._note_reported(self._states.get(durable.index, _NOBODY))
            claimed = max(self.promise.claimed, durable.index)
            end = max(promise.protected_end, log.entry_end(claimed))
            self.promise = replace(self.promise, claimed=claimed, protected_end=end)

    def _note_reported(self, state: HardState) -> None:
        reported = self.promise.reported
        if (state.current_term, state.voted_for is not None) > (
            reported.current_term,
            reported.voted_for is not None,
        ):
            self.promise = replace(self.promise, reported=state)

    # --- actions -------------------------------------------------------------------------------

    def play(self, script: Script) -> None:
        for action in script.actions:
            self.doing = action.name
            self._do(action)
            self._report()
        self.doing = "idle"

    def _do(self, action: Action) -> None:
        self.actions[action.name] += 1
        getattr(self, f"_{action.name}")(action)

    def _carry_out(
        self, state: HardState | None, cut: Index | None, entries: Sequence[Entry]
    ) -> None:
        """As `CoreShell._carry_out`, and the end of the turn."""
        log, rounds = self.store.log, self.group_commit
        if state is not None:
            self._wanted = state
            rounds.want_hard_state(state, own_vote=state.voted_for == _NODES[0])
        if cut is not None or entries:
            rounds.want_log()
        if cut is not None and cut <= log.last_index:
            self._cut(cut)
        if entries:
            ever = {(entry.index, entry.term, entry.payload) for entry in entries}
            promise = self.promise
            self.promise = replace(
                promise, log=promise.log + tuple(entries), ever=promise.ever | ever
            )
            self._states |= {entry.index: self._wanted for entry in entries}
            log.append(entries)
        rounds.begin()

    def _cut(self, index: Index) -> None:
        log, promise = self.store.log, self.promise
        assert index > promise.commit_index
        self._truncated_term = max(self._truncated_term, log.last_term)
        claimed = min(promise.claimed, index - 1)
        self.promise = replace(
            promise,
            log=promise.log[: index - 1 - promise.base.index],
            claimed=claimed,
            protected_end=min(promise.protected_end, log.position(index)),
        )
        log.truncate_from(index)
        self.group_commit.log_truncated()

    def _entries(self, first: Index, term: Term, sizes: Sequence[int]) -> tuple[Entry, ...]:
        return tuple(
            Entry(
                index=first + number,
                term=term,
                kind=EntryKind.DATA if size else EntryKind.NOOP,
                payload=self._rng.randbytes(size),
            )
            for number, size in enumerate(sizes)
        )

    def _append(self, action: Action) -> None:
        """Entries of the current term."""
        term = max(self._wanted.current_term, self.store.log.last_term)
        if term == 0:
            self._follow(action)
            return
        first = self.store.log.last_index + 1
        self._carry_out(None, None, self._entries(first, term, action.sizes))

    def _follow(self, action: Action) -> None:
        """A leader of a later term; it cuts the last entries off that are not committed."""
        term = self._wanted.current_term + 1
        last = self.store.log.last_index
        cut = max(self.promise.commit_index, last - action.cuts) + 1 if action.cuts else last + 1
        state = HardState(current_term=term, voted_for=None)
        self._carry_out(state, cut, self._entries(min(cut, last + 1), term, action.sizes))

    def _vote(self, action: Action) -> None:
        """For another candidate, in a later term or in this one."""
        wanted = self._wanted
        term = wanted.current_term + (wanted.voted_for is not None or not action.cuts)
        self._carry_out(HardState(current_term=term, voted_for=_NODES[1]), None, ())

    def _lead(self, action: Action) -> None:
        """A campaign, and the first entries of the term while its hard state may be under way."""
        term = self._wanted.current_term + 1
        self._carry_out(HardState(current_term=term, voted_for=_NODES[0]), None, ())
        if action.cuts:
            self._round(Action(name="round"))
        first = self.store.log.last_index + 1
        self._carry_out(None, None, self._entries(first, term, action.sizes))

    def _round(self, action: Action) -> None:
        """The round under way is carried out; `action.meanwhile` happens within it."""
        work, self._work = self._work, None
        if work is None:
            return
        with_late = self._beside(action, work[0])
        work[1](None)
        with_late()

    def _beside(self, action: Action, work: Callable[[], object]) -> Callable[[], None]:
        """Do `work` with what the loop does meanwhile; what then is to be done that waited."""
        self._meanwhile, self._countdown = list(action.meanwhile), 0
        work()
        rest = self._late + [one for _, one in self._meanwhile]
        self._meanwhile, self._late = [], []

        def late() -> None:
            for one in rest:
                self._do(one)

        return late

    def _commit(self, action: Action) -> None:
        """A majority has some more; this node perhaps not durably."""
        index = min(self.store.log.last_index, self.promise.commit_index + 1 + action.cuts)
        index = max(index, self.promise.commit_index)
        self.promise = replace(self.promise, commit_index=index)

    def _checkpoint(self, action: Action) -> None:
        index = min(self.promise.commit_index, self.promise.claimed)
        late = self._beside(action, lambda: self.store.write_checkpoint(index, index, clean=False))
        late()

    def _snapshot(self, action: Action) -> None:
        """As `SnapshotKeeper._write`, on a thread, and what is not kept removed."""
        log, files = self.store.log, self.store.snapshots
        index = self.promise.commit_index
        if not log.base.index < index <= log.last_index or index in self.promise.snapshots:
            return
        header = _header(
            LogBase(
                index=index,
                term=log.term(index),
                position=log.entry_end(index),
                chain=log.chain(index),
            )
        )

        def write() -> None:
            log.sync()
            files.write(header, iter([_state_at(index)]))

        late = self._beside(action, write)
        retained = frozenset(sorted({*self.promise.snapshots, index})[-2:])
        self.promise = replace(self.promise, snapshots=retained)
        files.retain(retained)
        late()

    def _drop(self, action: Action) -> None:
        """Retention, down to the older of two snapshots."""
        log, snapshots = self.store.log, sorted(self.promise.snapshots)
        if len(snapshots) < 2 or not log.base.index <= snapshots[0] <= log.last_index:
            return
        base = log.drop_before(log.entry_end(snapshots[0]), action.cuts or None)
        promise = self.promise
        self.promise = replace(
            promise, base=base, log=promise.log[base.index - promise.base.index :]
        )

    def _install(self, action: Action) -> None:
        """A leader's snapshot comes, in pieces, and takes the place of the log's beginning."""
        log = self.store.log
        index = log.last_index + 1 + action.cuts
        term = self._wanted.current_term + 1
        base = LogBase(
            index=index, term=term, position=log.end_position + 1_000 + action.cuts, chain=index
        )
        self._carry_out(HardState(current_term=term, voted_for=None), None, ())
        data = _snapshot_file(_header(base))
        half = len(data) // 2
        for offset, piece in ((0, data[:half]), (half, data[half:])):
            received = self.receiver.store(_chunk(base, len(data), offset, piece))
        assert received.whole
        promise = self.promise
        self.promise = replace(
            promise,
            snapshots=promise.snapshots | {index},
            installing=base,
            protected_end=0,
            commit_index=index,
        )
        self.group_commit.log_truncated()
        self._truncated_term = max(self._truncated_term, log.last_term)
        log.reset(base)
        self._note_reported(self._wanted)  # the base is of its term, and durable
        self.promise = replace(
            self.promise, base=base, log=(), claimed=index, installing=None, protected_end=0
        )
        retained = frozenset(sorted(self.promise.snapshots)[-2:])
        self.promise = replace(self.promise, snapshots=retained)
        self.store.snapshots.retain(retained)
        self.group_commit.begin()

    def _restart(self, action: Action) -> None:
        """A clean stop, as `RaftNode.stop`, or the process killed between two actions."""
        if action.cuts:
            self._round(Action(name="round"))
            self.group_commit.end()
            self.group_commit.persist_rest()
            self._note_reported(self._wanted)
            log = self.store.log
            self.promise = replace(
                self.promise, claimed=log.last_index, protected_end=log.end_position
            )
            index = min(self.promise.commit_index, log.last_index)
            self.store.write_checkpoint(index, index, clean=True)
        self.end()
        self._work = None
        self._reports.clear()
        self.disk.process_crash()
        self.start()


def _header(last: LogBase) -> SnapshotHeader:
    return SnapshotHeader(last=last, config_index=0, membership=encode_membership(_MEMBERS))


def _snapshot_file(header: SnapshotHeader) -> bytes:
    """The leader's, as it lies on its disk."""
    disk = SimDisk(random.Random(0))
    files = SnapshotFiles(disk)
    files.write(header, iter([_state_at(header.last.index)]))
    return disk.content(files.path(header.last.index))


def _chunk(base: LogBase, size: int, offset: int, data: bytes) -> InstallSnapshot:
    return InstallSnapshot(
        sender=_NODES[1],
        receiver=_NODES[0],
        term=base.term,
        base=base,
        configuration=Configuration(index=0, membership=_MEMBERS),
        snapshot_index=base.index,
        snapshot_size=size,
        offset=offset,
        data=data,
        crc=zlib.crc32(data),
    )
