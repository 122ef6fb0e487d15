"""Decisions about another message: sent where nobody but the sender decides the half."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import parse_scenario
from chaos.workload.actor import Actor
from chaos.workload.decisions import DecisionSender
from client.message import MessageQueue, SendStatus
from client.produce.transaction_producer import Decision, EndOutcome, EndResult, HalfMessage
from tests.chaos.part_at_work import asked_of

HALF = HalfMessage(
    topic="t",
    broker_name="broker-a",
    msg_id="AB",
    transaction_id=None,
    offset=1,
    commit_log_offset=7,
    status=SendStatus.SEND_OK,
)


class Lowest(random.Random):
    """Draws the least, so that each share of decisions is met."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("decision", "deleted", "sent"),
    [
        (Decision.COMMIT, [], True),
        (Decision.COMMIT, ["t"], False),  # brokers roll it back themselves: done, by whatever id
        (Decision.ROLLBACK, ["t"], True),
    ],
)
async def test_a_mistaken_rollback_is_not_sent_of_a_topic_that_is_deleted(
    decision: Decision, deleted: list[str], sent: bool, tmp_path: Path
) -> None:
    async def end(half: HalfMessage, _: Decision, *, timeout_ms: int) -> EndResult:
        del timeout_ms
        return EndResult(outcome=EndOutcome.OK if half == HALF else EndOutcome.INFO)

    queue = MessageQueue("t", "broker-a", 0)
    with HistoryWriter(tmp_path / "history", started_ns=0) as history:
        context: Any = SimpleNamespace(
            # As the part of deletions has it: its topics are the workload's own there.
            scenario=parse_scenario('[workload]\ntopics = ["t"]\n', name="x"),
            part_queues={"deletions": [MessageQueue(topic, "broker-a", 0) for topic in deleted]},
        )
        actor = Actor(history, root="p", client="c", client_group="g")
        producer: Any = SimpleNamespace(end=end)
        await DecisionSender(context, producer, actor, rng=Lowest()).decide(
            HALF, "tx", decision, queue
        )
    assert ("AB" in asked_of(tmp_path)) is sent
