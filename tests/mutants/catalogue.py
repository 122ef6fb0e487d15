"""Six bugs that real systems have had, as substitutes for the product's own parts.

Place in the data path: `tests/sim/test_mutants.py` puts each into the simulator, which must catch
it. The product has no switch for any of them: a mutant subclasses a part, or patches a name for
as long as it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import raft.core
import raft.log_recovery
import raft.segment_log
from chaos.sim.world import Parts
from raft.core import Core
from raft.events import Role
from raft.hard_state import HardStateFile
from raft.leadership import Leadership
from raft.log_format import HEADER, HEADER_SIZE, EntryCutShortError, EntryDefectError, EntryHeader
from raft.log_format import parse_entry as real_parse_entry
from raft.messages import AppendEntriesReply, Entry, EntryKind, HardState, Message
from raft.quorum import majority_reached
from raft.segment_log import SegmentLog, SyncedTo

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`patches` maps a module to names in it and what stands there while the mutant runs."""

    parts: Parts = field(default_factory=Parts)
    patches: tuple[tuple[object, str, object], ...] = field(default=())

    @contextmanager
    def planted(self) -> Iterator[Parts]:
        with ExitStack() as stack:
            for module, name, substitute in self.patches:
                stack.enter_context(mock.patch.object(module, name, substitute))
            yield self.parts


class _VoteForgotten(HardStateFile):
    """The term is persisted, the vote is not: it is answered before anything durable says so."""

    def save(self, state: HardState) -> None:
        super().save(HardState(current_term=state.current_term, voted_for=None))


class _SyncSkipped(SegmentLog):
    """Claims what was written, without asking the disk."""

    def sync(self) -> SyncedTo:
        return SyncedTo(index=self.last_index, term=self.last_term)


class _AnyTermCounted(Leadership):
    """Commits whatever a majority has, of whatever term (figure 8 of the paper)."""

    __slots__ = ()

    def maybe_commit(self, now_ms: int) -> bool:
        log = self._log
        index = majority_reached([*(peer.match_index for peer in self._peers), log.durable_index])
        if index > log.commit_index and log.term(index) != self._term:
            log.commit_to(index)
        return super().maybe_commit(now_ms)


class _TailTruncated(Core):
    """Cuts the log behind prev_log_index on every AppendEntries, then refills it."""

    def _append_received(self, entries: tuple[Entry, ...]) -> None:
        log = self._log
        entries = tuple(entry for entry in entries if entry.index > log.commit_index)
        if not entries:
            return
        if entries[0].index <= log.last_index:
            log.truncate_from(entries[0].index)
            self._truncate_from = entries[0].index
        log.append(entries)
        self._entries = entries


class _StaleReplyCounted(Core):
    """An acknowledgement of an earlier term moves a follower's progress in this one."""

    def _receive(self, message: Message) -> None:
        is_stale_reply = isinstance(message, AppendEntriesReply) and message.success
        if is_stale_reply and self._role is Role.LEADER and message.term < self._current_term:
            message = replace(message, term=self._current_term)
        super()._receive(message)


def _parse_without_crc(
    buffer: bytes | memoryview,
    offset: int,
    *,
    index: int | None,
    position: int,
    chain_before: int | None,
) -> EntryHeader:
    """Takes an entry whose header reads well, whatever became of its payload."""
    try:
        return real_parse_entry(
            buffer, offset, index=index, position=position, chain_before=chain_before
        )
    except EntryCutShortError:
        raise
    except EntryDefectError as defect:
        if "its bytes give" not in str(defect):
            raise
        _, size, found_index, term, _, kind, _, chain = HEADER.unpack_from(buffer, offset)
        assert size >= HEADER_SIZE
        return EntryHeader(
            size=size, index=found_index, term=term, kind=EntryKind(kind), chain=chain
        )


MUTANTS: dict[str, Mutant] = {
    "vote not persisted": Mutant(parts=Parts(hard_state=_VoteForgotten)),
    "fsync skipped": Mutant(parts=Parts(log=_SyncSkipped)),
    "old-term entry committed by counting": Mutant(
        patches=((raft.core, "Leadership", _AnyTermCounted),)
    ),
    "matching tail truncated": Mutant(parts=Parts(core=_TailTruncated)),
    "stale append reply counted": Mutant(parts=Parts(core=_StaleReplyCounted)),
    "torn tail kept": Mutant(
        patches=(
            (raft.log_recovery, "parse_entry", _parse_without_crc),
            (raft.segment_log, "parse_entry", _parse_without_crc),
        )
    ),
}
