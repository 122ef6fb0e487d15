"""What the parts that consume in further ways decide by themselves, without a cluster."""

from __future__ import annotations

import random

import pytest

from chaos.scenario.scenario import ScenarioError, parse_scenario
from chaos.workload.parts.catalogue import PARTS
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.consumers.due_offsets import DueOffsets
from chaos.workload.parts.consumers.retries import refusals_of
from client.message import MessageQueue

CONSUMING = (
    "orderly",
    "broadcast",
    "retries",
    "litepull",
    "resets",
    "filters",
    "longpolls",
    "assignments",
)
QUEUE = MessageQueue("resets", "broker-a", 0)


def test_every_part_has_names_that_begin_with_its_own_and_rules() -> None:
    text = "\n".join(f"[workload.{name}]" for name in CONSUMING)
    scenario = parse_scenario(text, name="consumers")
    assert set(scenario.parts) == set(CONSUMING)
    for name, section in scenario.parts.items():
        spec = PARTS[name]
        assert spec.judged_by
        for word in (*spec.topics(section), *spec.slots(section)):
            assert word.startswith(name)


def test_a_number_out_of_its_range_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"workload\.retries\.poison_share must be 0\.\.1"):
        parse_scenario("[workload.retries]\npoison_share = 2.0", name="x")


def test_every_member_refuses_a_message_alike_and_some_for_ever() -> None:
    drawn = [
        refusals_of(f"p-{number}", retries_max=2, refuse_share=0.3, poison_share=0.2)
        for number in range(1_000)
    ]
    assert drawn == [
        refusals_of(f"p-{number}", retries_max=2, refuse_share=0.3, poison_share=0.2)
        for number in range(1_000)
    ]
    assert {0, 1, 2} < set(drawn)
    assert 100 < sum(count > 2 for count in drawn) < 300


def test_what_was_consumed_before_its_sender_knew_is_not_owed() -> None:
    owed = Owed()
    owed.consumed(["early"])
    owed.acknowledged("early")
    assert owed.is_empty
    owed.acknowledged("late")
    assert not owed.is_empty
    owed.consumed(["late"])
    assert owed.is_empty


def test_a_reset_makes_due_what_stands_behind_it() -> None:
    due = DueOffsets()
    for offset in range(4):
        due.acknowledged(QUEUE, offset)
    due.shown(QUEUE, [0, 1, 2, 3])
    assert due.is_empty
    due.reset(QUEUE, 2)
    due.shown(QUEUE, [2])
    assert not due.is_empty
    due.shown(QUEUE, [3])
    assert due.is_empty
    due.reset(QUEUE, 4)
    due.acknowledged(QUEUE, 3)
    assert due.is_empty
    due.acknowledged(QUEUE, 4)
    assert not due.is_empty
    due.reset(QUEUE, None)
    assert due.is_empty
    assert 0 <= due.draw(QUEUE, random.Random(1)) <= 5
