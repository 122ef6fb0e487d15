"""What a member is to be delivered again, by the model; names and bodies of the workload."""

from __future__ import annotations

import asyncio
import random

import pytest

from chaos.workload.messages import SIZES, MessageMaker
from chaos.workload.namespaces import application_name, namespace_name, wire_name
from chaos.workload.parts.common.failing_listener import ListenerBugError, refuse
from chaos.workload.parts.consumers.redeliveries import SLACK_S, Redeliveries
from chaos.workload.parts.producers.request_answers import body_of_answer, value_of_answer
from client.consume.listener import ConsumeStatus
from client.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def test_each_refusal_counts_and_waits_twice_as_long() -> None:
    model = Redeliveries(limit=2, wait_s=1.0, ordered=False)
    assert model.count_of(QUEUE, 7) == 0
    model.refused(QUEUE, [7], 10.0)
    assert model.count_of(QUEUE, 7) == 1
    assert model.overdue(11.0 + SLACK_S) == []
    assert model.overdue(11.1 + SLACK_S) == [(QUEUE, 7)]
    model.refused(QUEUE, [7], 20.0)
    assert model.overdue(22.0 + SLACK_S) == []
    assert model.overdue(22.1 + SLACK_S) == [(QUEUE, 7)]
    model.refused(QUEUE, [7], 30.0)
    assert model.is_dropped(QUEUE, 7)
    assert model.overdue(1e9) == []
    model.refused(QUEUE, [8], 30.0)
    model.consumed(QUEUE, [8])
    assert (model.count_of(QUEUE, 8), model.overdue(1e9)) == (0, [])


def test_an_ordered_queue_goes_on_with_what_was_refused() -> None:
    model = Redeliveries(limit=1, wait_s=1.0, ordered=True)
    assert model.next_of(QUEUE) is None
    model.refused(QUEUE, [4, 5], 0.0)
    assert model.next_of(QUEUE) == 4
    model.refused(QUEUE, [4, 5], 1.0)
    assert model.is_open(QUEUE, 4), "a dead letter, or again where no broker takes it"
    assert model.next_of(QUEUE) is None
    model.passed(QUEUE, 5)
    assert not model.is_open(QUEUE, 4)
    assert model.is_open(QUEUE, 5)
    model.refused(QUEUE, [9], 2.0)
    model.forget(QUEUE)
    assert (model.next_of(QUEUE), model.count_of(QUEUE, 9)) == (None, 0)


async def test_a_listener_fails_in_all_ways() -> None:
    seen = set()
    for seed in range(60):
        try:
            async with asyncio.timeout(0.001):
                seen.add(await refuse(random.Random(seed)))
        except (ListenerBugError, TimeoutError) as error:
            seen.add(type(error))
    assert seen == {ConsumeStatus.RECONSUME_LATER, None, ListenerBugError, TimeoutError}


@pytest.mark.parametrize("part", ["broadcast", "litepull", "orderly", "requests", "retries"])
def test_names_of_a_part_begin_with_that_of_its_namespace_and_are_not_in_it(part: str) -> None:
    space = namespace_name(part)
    assert part.startswith(space)
    assert wire_name(space, part) == f"{space}%{part}"
    assert wire_name(space, f"%RETRY%{part}") == f"%RETRY%{space}%{part}"
    assert wire_name("", part) == part
    for name in (part, f"%DLQ%{part}"):
        assert application_name(space, wire_name(space, name)) == name
        assert application_name(space, name) == name


@pytest.mark.parametrize("value", ["answer-c-1", "answer-c-1-of-1", "answer-c-1-of-5000"])
def test_an_answer_is_known_by_its_whole_body(value: str) -> None:
    body = body_of_answer(value)
    assert value_of_answer(body) == value
    size = int(value.partition("-of-")[2] or 0)
    assert len(body) >= size
    assert value_of_answer(body + b"=") != value
    assert value_of_answer(b"x" + body) != value


def test_bodies_are_of_every_size() -> None:
    maker = MessageMaker(prefix="p", body_bytes=300, sizes_share=0.5, rng=random.Random(1))
    sizes = {len(maker.make("T", uniq_key=f"U{number}").body) for number in range(200)}
    assert sizes == {300, *SIZES}
