"""Bugs planted into running brokers: transactions and their checks."""

from __future__ import annotations

from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["LIVE_TRANSACTION_MUTANTS"]

_PROPOSE = "EndTransactionProcessor._propose"
_COMMITS = """
elif decision == "commit":
    records.insert(0, final_record(replica, leadership, half, record))
"""


def _ending(before: str, after: str, within: str = _PROPOSE) -> tuple[SourcePatch, ...]:
    module = "broker.transaction.end_transaction"
    return (SourcePatch(module=module, within=within, before=before, after=after),)


def _checking(before: str, after: str, within: str) -> tuple[SourcePatch, ...]:
    module = "broker.transaction.check_back"
    return (SourcePatch(module=module, within=within, before=before, after=after),)


LIVE_TRANSACTION_MUTANTS = (
    LiveMutant(
        name="rolled back, and delivered",
        breaks="one rollback in three makes the message visible",
        expected=("T1", "T2"),
        broker=_ending(
            _COMMITS,
            """
            elif decision == "commit" or planted("rolled back, and delivered", every=3):
                records.insert(0, final_record(replica, leadership, half, record))
            """,
        ),
    ),
    LiveMutant(
        name="committed twice",
        breaks="one commit in ten stores the message twice",
        expected=("A2", "T4"),
        broker=_ending(
            _COMMITS,
            """
            elif decision == "commit":
                records.insert(0, final_record(replica, leadership, half, record))
                if planted("committed twice", every=10):
                    records.insert(0, final_record(replica, leadership, half, record))
            """,
        ),
    ),
    LiveMutant(
        name="committed, never delivered",
        breaks="one commit in ten is decided and stores no message",
        expected=("T3", "A4"),
        broker=_ending(
            _COMMITS,
            """
            elif decision == "commit" and not planted("committed, never delivered", every=10):
                records.insert(0, final_record(replica, leadership, half, record))
            """,
        ),
    ),
    LiveMutant(
        name="committed with another body",
        breaks="every committed transaction has another body than its half",
        expected=("A18",),
        broker=(
            SourcePatch(
                module="broker.transaction.records",
                within="final_record",
                before="if waiting is not None and waiting.deliver_ms is not None:",
                after="""
                if planted("committed with another body"):
                    pending.body = pending.body[::-1]
                if waiting is not None and waiting.deliver_ms is not None:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="decision answered when proposed",
        breaks="a decision is answered before it is committed",
        expected=("A20",),
        broker=_ending(
            "commit(",
            """
            if planted("decision answered when proposed") and decision == wanted:
                request.reply(ResponseCode.SUCCESS)
                leadership.proposer.submit(
                    Proposal(
                        commands=[command],
                        records=records,
                        on_done=lambda _: None,
                        half_queue_offset=half.queue_offset,
                    )
                )
                return
            commit(
            """,
        ),
    ),
    LiveMutant(
        name="decision answered, and dropped",
        breaks="one decision in eight is answered and forgotten until the broker asks",
        expected=("A20", "T3"),
        broker=_ending(
            "commit(",
            """
            if planted("decision answered, and dropped", every=8):
                request.reply(ResponseCode.SUCCESS)
                return
            commit(
            """,
        ),
    ),
    LiveMutant(
        name="commit taken for a rollback",
        breaks="one commit in fifteen is stored as a rollback",
        expected=("T3", "A4", "T5"),
        broker=_ending(
            "replica, leadership, wanted = self._replica, self._leadership, decision",
            """
            replica, leadership, wanted = self._replica, self._leadership, decision
            if decision == "commit" and planted("commit taken for a rollback", every=15):
                wanted = decision = "rollback"
            """,
        ),
    ),
    LiveMutant(
        name="op record of another transaction",
        breaks="one op record in seven names the half behind its own",
        expected=("T12", "T10"),
        broker=(
            SourcePatch(
                module="broker.transaction.records",
                within="op_record",
                before='f"{half.queue_offset},".encode(),',
                after="""
                f"{half.queue_offset + planted('op record of another transaction', every=7)},"
                .encode(),
                """,
            ),
        ),
    ),
    LiveMutant(
        name="check never asked",
        breaks="nobody is asked about any undecided half: where there is no check, the run format "
        "leaves T6 to T9 out, and a half that is open at the end proves nothing",
        expected=("T11",),
        verdict="unknown",
        broker=_checking(
            "if self._producer(properties) is None:",
            """
            if planted("check never asked") or self._producer(properties) is None:
            """,
            "CheckBack._examine",
        ),
    ),
    LiveMutant(
        name="check of some halves never asked",
        breaks="nobody is asked about one half in three",
        expected=("T6",),
        broker=_checking(
            "if self._producer(properties) is None:",
            """
            if (
                half.queue_offset % 3 == 0 and planted("check of some halves never asked")
            ) or self._producer(properties) is None:
            """,
            "CheckBack._examine",
        ),
    ),
    LiveMutant(
        name="check asked too early",
        breaks="a half is asked about before its time",
        expected=("T7",),
        survives="it costs the producer a needless question; the run format does not bound how early "
        "a broker may ask",
        broker=_checking(
            "if age_ms < config.transaction_timeout_ms:",
            """
            if age_ms < config.transaction_timeout_ms and not (
                age_ms > 50 and planted("check asked too early")
            ):
            """,
            "CheckBack._examine",
        ),
    ),
    LiveMutant(
        name="check asked twice",
        breaks="each check is sent twice, and counted once",
        expected=("T8",),
        broker=_checking(
            "connection.send(",
            """
            (
                lambda question: [
                    connection.send(question)
                    for _ in range(1 + planted("check asked twice"))
                ]
            )(
            """,
            "CheckBack._send_check",
        ),
    ),
    LiveMutant(
        name="half discarded too early",
        breaks="a half is given up after its first check",
        expected=("T8", "T11"),
        broker=_checking(
            "if half.checks >= config.transaction_check_max "
            "or age_ms > config.transaction_retention_ms:",
            """
            if half.checks >= 1 and planted("half discarded too early"):
            """,
            "CheckBack._examine",
        ),
    ),
    LiveMutant(
        name="progress past an undecided half",
        breaks="the half queue's progress counts halves that nobody has decided",
        expected=("T10",),
        broker=(
            SourcePatch(
                module="broker.state.half_table",
                within="HalfTable.progress",
                before="return self.next_offset if oldest is None else oldest.queue_offset",
                after="""
                if planted("progress past an undecided half"):
                    return self.next_offset
                return self.next_offset if oldest is None else oldest.queue_offset
                """,
            ),
        ),
    ),
)
