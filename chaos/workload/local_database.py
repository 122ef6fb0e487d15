"""The transactional application's own database: the decision of each local transaction.

Place in the data path: `chaos.workload.transactional_sender` executes local transactions here, and
checks of the broker are answered from here, by whichever client of the producer group gets them.

It outlives the crash of a producer, as a database does. A check that finds no row means that the
local transaction never committed: the row ROLLBACK is written before the answer, so that a local
transaction which comes later finds it and does not commit. Without that the application itself
would break atomicity, and T11 would blame the broker.

Invariant: a row never changes once written.
"""

from __future__ import annotations

from collections.abc import Callable

from client.produce.transaction_producer import Decision

__all__ = ["LocalDatabase"]


class LocalDatabase:
    """Rows by transaction. Bounded by the run: one small row per transaction."""

    def __init__(self) -> None:
        self._rows: dict[str, Decision] = {}
        self._unknown_answers: dict[str, int] = {}
        self._undecided: set[str] = set()
        self._late: dict[str, Callable[[], None]] = {}
        self._silent: set[str] = set()

    def execute(self, tx: str, wanted: Decision) -> Decision:
        """Run the local transaction: `wanted`, unless a check has decided it before."""
        assert wanted is not Decision.UNKNOWN
        assert tx not in self._undecided
        return self._rows.setdefault(tx, wanted)

    def answer_unknown_first(self, tx: str, times: int) -> None:
        """Answer the next `times` checks of `tx` with UNKNOWN, as a slow database would."""
        self._unknown_answers[tx] = times

    def never_decide(self, tx: str) -> None:
        """Answer every check of `tx` with UNKNOWN; it must not be executed."""
        self._undecided.add(tx)

    def decide_late(self, tx: str, on_check: Callable[[], None]) -> None:
        """Answer checks of `tx` with UNKNOWN until `decided`, and call `on_check` at each."""
        self._late[tx] = on_check

    def decided(self, tx: str) -> None:
        """Answer checks of `tx` from its row again: its decision is about to be sent."""
        self._late.pop(tx, None)

    def may_be_silent(self, tx: str) -> bool:
        """Return whether a check of `tx` may go without an answer: once, and where none was or is
        to be answered with UNKNOWN. More than a few would use up all its checks, and the broker
        discard what was committed here."""
        if tx in self._silent or tx in self._unknown_answers or tx in self._late:
            return False
        self._silent.add(tx)
        return True

    def check(self, tx: str) -> Decision:
        if tx in self._late:
            self._late[tx]()
            return Decision.UNKNOWN
        if tx in self._undecided:
            return Decision.UNKNOWN
        left = self._unknown_answers.get(tx, 0)
        if left > 0:
            self._unknown_answers[tx] = left - 1
            return Decision.UNKNOWN
        # Written before the answer, so that a later `execute` does not commit.
        return self._rows.setdefault(tx, Decision.ROLLBACK)
