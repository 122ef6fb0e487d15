"""ReadIndex: the reads that wait on a leader, and the round of answers that confirms them.

Place in the data path: `raft.core.leader_role` numbers its AppendEntries with `round`, peers echo
it, and the reads of a round are answered once a majority has echoed it or a later one. Reads that
arrive during a round wait for the next one, so that any number of them costs one round.

Invariants: a read is confirmed by answers to messages sent after it was requested; it is answered
with the commit index at the start of its round; at most `count_max` wait.

Source: Ongaro's dissertation 6.4.
"""

from __future__ import annotations

from raft.events import ReadState
from raft.ids import Index

__all__ = ["ReadRounds"]


class ReadRounds:
    """Read rounds of one leadership; `LeaderRole` sends the messages and counts the answers."""

    __slots__ = ("_confirming", "_confirming_round", "_count_max", "_index", "_queued", "round")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.round = 0
        self._confirming_round = 0  # the round that confirms `_confirming`
        self._index: Index = 0
        self._confirming: list[int] = []  # requests that wait for the round under way
        self._queued: list[int] = []  # requests that wait for the next round

    @property
    def waiting_round(self) -> int | None:
        """Round that reads wait for; None if none is under way."""
        return self._confirming_round if self._confirming else None

    @property
    def has_queued(self) -> bool:
        return bool(self._queued)

    @property
    def open(self) -> list[int]:
        """Requests that are not answered yet."""
        return self._confirming + self._queued

    def request(self, request_id: int) -> bool:
        """Queue a read for the next round; False if too many wait."""
        if len(self._queued) + len(self._confirming) >= self._count_max:
            return False
        self._queued.append(request_id)
        return True

    def next_round(self) -> int:
        """Start a new number, which separates later messages from earlier ones."""
        self.round += 1
        return self.round

    def begin(self, commit_index: Index) -> None:
        """Let the queued reads wait for a new round, whose messages are sent next."""
        assert not self._confirming, "one round at a time"
        self._confirming, self._queued = self._queued, []
        self._index = commit_index
        self._confirming_round = self.next_round()

    def confirm(self) -> list[ReadState]:
        """Answer the reads of the round under way: a majority has echoed it."""
        confirmed, self._confirming = self._confirming, []
        return [ReadState(request_id=request_id, index=self._index) for request_id in confirmed]
