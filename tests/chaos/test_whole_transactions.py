"""Transactions that are run by one call, against a producer that is none."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import WorkloadSection
from chaos.workload.actor import Actor
from chaos.workload.local_database import LocalDatabase
from chaos.workload.messages import MessageMaker
from chaos.workload.whole_transactions import DatabaseListener, WholeTransactions
from client.message import Message, MessageQueue, SendStatus
from client.produce.transaction_producer import EndOutcome, EndResult, HalfMessage
from tests.chaos.histories import ops_of

QUEUE = MessageQueue("T", "broker-a", 0)
HALF = HalfMessage(
    topic="T",
    broker_name="broker-a",
    msg_id="m",
    transaction_id=None,
    offset=3,
    commit_log_offset=0,
    status=SendStatus.SEND_OK,
)


class FakeProducer:
    """Stores every half and carries every decision out."""

    def __init__(self, listener: DatabaseListener) -> None:
        self.listener = listener

    async def send_in_transaction(self, message: Message, **_: object) -> Any:
        decision = await self.listener.execute_local(message, HALF)
        end = EndResult(outcome=EndOutcome.OK, address="h:1")
        return SimpleNamespace(decision=decision, end=end)


async def test_what_a_failing_listener_leaves_is_found_by_a_check(tmp_path: Path) -> None:
    rng, database = random.Random(1), LocalDatabase()
    listener = DatabaseListener(database, fails=False, rng=rng)
    maker = MessageMaker(prefix="p", body_bytes=10, rng=rng)
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        settings = replace(WorkloadSection(), commit_share=0.7, rollback_share=0.3)
        context = SimpleNamespace(
            scenario=SimpleNamespace(workload=settings), node=lambda address: "n1"
        )
        actor = Actor(history, root="p", client="c", client_group="g")
        transactions = WholeTransactions(
            cast(Any, context),
            cast(Any, FakeProducer(listener)),
            listener,
            database,
            actor,
            rng=rng,
        )
        for number in range(60):
            message = maker.make("T", uniq_key=f"U{number}", transactional=True)
            await transactions.run(message, QUEUE, timeout_ms=100)
    ops = ops_of(tmp_path / "h")
    of_tx = Counter((op["tx"], op["f"]) for op in ops)
    assert set(of_tx.values()) == {1}
    decisions = {op["tx"]: op["decision"] for op in ops if op["f"] == "local"}
    told = {op["tx"]: op["decision"] for op in ops if op["f"] == "decide"}
    halves = {op["tx"] for op in ops if op["f"] == "half"}
    assert told.items() <= decisions.items()
    assert len(told) < len(decisions) < len(halves) == 60
    assert {database.check(tx).value for tx in decisions} == {"commit", "rollback"}
    assert all(database.check(tx).value == decision for tx, decision in decisions.items())
    assert {op["type"] for op in ops} == {"ok"}


def test_a_transaction_has_checks_left_when_its_database_answers_again() -> None:
    """Of check_max checks one may go without an answer, or a few are answered with UNKNOWN."""
    database = LocalDatabase()
    database.answer_unknown_first("slow", 2)
    database.decide_late("late", lambda: None)
    assert not database.may_be_silent("slow")
    assert not database.may_be_silent("late")
    assert database.may_be_silent("plain")
    assert not database.may_be_silent("plain")
    database.decided("late")
    assert database.may_be_silent("late")
