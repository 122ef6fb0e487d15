"""The part of POP consumers: what its groups owe, what its members record, and when they stop."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.recording.history import HistoryWriter
from chaos.scenario.part_sections import PopsSection
from chaos.scenario.scenario import ScenarioError, parse_scenario
from chaos.workload.context import WorkContext
from chaos.workload.parts.consumers.pop_member import PopMember, is_poison
from chaos.workload.parts.consumers.pop_owed import Owed
from chaos.workload.parts.consumers.pops import SPEC
from chaos.worlds.world import World
from client.connection.instance import ClientInstance
from client.consume.batch_ack import batch_ack_body
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.errors import BrokerUnreachableError, UnansweredError
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.pop_handle import ORDER_REVIVE_QUEUE, PopHandle
from tests.chaos.histories import ops_of

NOTHING_ELSE = PopsSection(
    batch_share=0,
    leave_share=0,
    late_share=0,
    change_share=0,
    work_share=0,
    twice_share=0,
    poison_share=0,
    skip_share=0,
    shorten_share=0,
    busy_share=0,
)


def test_a_message_is_owed_until_it_is_certainly_consumed() -> None:
    owed = Owed()
    assert owed.is_empty(0)
    owed.sent("a")
    assert not owed.is_empty(0)
    owed.delivered("a")
    owed.maybe_acknowledged("a", until_s=5)
    assert not owed.is_empty(4)
    assert owed.is_empty(5)
    owed.delivered("a")  # it came again
    assert not owed.is_empty(9)
    owed.acknowledged("a")
    owed.sent("a")  # the answer to its sender came last
    owed.maybe_acknowledged("a", until_s=50)
    assert owed.is_empty(9)


def test_poison_is_the_same_for_everybody() -> None:
    values = [f"p-{number}" for number in range(2_000)]
    poison = [value for value in values if is_poison(value, 0.05)]
    assert 50 < len(poison) < 150
    assert poison == [value for value in values if is_poison(value, 0.05)]
    assert not any(is_poison(value, 0) for value in values)


def test_names_begin_with_the_parts_own() -> None:
    section = PopsSection()
    assert all(name.startswith(SPEC.name) for name in (*SPEC.topics(section), *SPEC.slots(section)))
    assert len(set(SPEC.slots(section))) == section.members + section.order_members + 3


@pytest.mark.parametrize("line", ["members = 0", "leave_share = 1.5", "invisible_ms = 0"])
def test_a_number_out_of_its_range_is_named(line: str) -> None:
    with pytest.raises(ScenarioError, match=line.split(" ", maxsplit=1)[0]):
        parse_scenario(f"[workload.pops]\n{line}\n", name="x")


def test_a_batch_has_a_row_per_pop_and_queue() -> None:
    handle = PopHandle(
        start_offset=7,
        pop_ms=5,
        invisible_ms=9,
        revive_queue=0,
        retry_flag="0",
        broker_name="broker-a",
        queue_id=2,
        offset=7,
    )
    later = dataclasses.replace(handle, offset=15)
    retried = dataclasses.replace(handle, retry_flag="1", start_offset=3, offset=3)
    body = batch_ack_body("broker-a", "G", [("T", handle), ("T", later), ("T", retried)])
    assert body == (
        b'{"brokerName":"broker-a","acks":['
        b'{"c":"G","t":"T","r":"0","so":7,"q":2,"rq":0,"pt":5,"it":9,"b":"AQE="},'
        b'{"c":"G","t":"T","r":"1","so":3,"q":2,"rq":0,"pt":5,"it":9,"b":"AQ=="}]}'
    )


class _Consumer:
    """Answers pops from a list, and ends the run when there is nothing left."""

    def __init__(
        self, answers: Sequence[list[PoppedMessage]], drained: asyncio.Event, *, group: str = "G"
    ) -> None:
        self.group = group
        self.instance = cast(ClientInstance, None)
        self._answers = list(answers)
        self._drained = drained
        self.on_ack: Callable[[Sequence[PoppedMessage]], None] = lambda popped: None

    async def pop(self, topic: str, **settings: Any) -> list[PoppedMessage]:
        if not self._answers:
            self._drained.set()
            return []
        return self._answers.pop(0)

    async def ack(self, popped: PoppedMessage) -> None:
        self.on_ack([popped])

    async def ack_all(self, popped: Sequence[PoppedMessage]) -> None:
        self.on_ack(popped)

    async def change_invisible(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        handle = dataclasses.replace(popped.handle, pop_ms=popped.handle.pop_ms + 1)
        return dataclasses.replace(popped, handle=handle)


def _popped(value: str, offset: int, *, retry: bool = False, order: bool = False) -> PoppedMessage:
    message = DeliveredMessage(
        topic="pops",
        queue=MessageQueue("pops", "broker-a", 0),
        queue_offset=offset,
        body=b"",
        properties={"lmq_value": value},
        uniq_key=f"K-{value}",
        offset_msg_id="",
        physical_offset=0,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        flag=0,
        sys_flag=0,
        reconsume_times=int(retry),
        prepared_transaction_offset=0,
    )
    handle = PopHandle(
        start_offset=offset,
        pop_ms=5,
        invisible_ms=9,
        revive_queue=ORDER_REVIVE_QUEUE if order else 0,
        retry_flag="1" if retry else "0",
        broker_name="broker-a",
        queue_id=0,
        offset=offset,
    )
    return PoppedMessage(message=message, handle=handle)


class _Rig:
    def __init__(self, folder: Path, answers: Sequence[list[PoppedMessage]]) -> None:
        self.path = folder / "h"
        self.history = HistoryWriter(self.path, started_ns=0)
        self.drained = asyncio.Event()
        self.consumer = _Consumer(answers, self.drained)
        self.owed = Owed()

    def member(self, section: PopsSection, *, in_order: bool = False) -> PopMember:
        context = WorkContext(
            scenario=parse_scenario("[load]\n", name="x"),
            world=cast(World, None),
            history=self.history,
            queues=(),
            nodes={},
        )
        return PopMember(
            context,
            cast(PopConsumer, self.consumer),
            "m.0",
            section=section,
            topic="pops",
            brokers=["broker-a"],
            owed=self.owed,
            namespace="",
            in_order=in_order,
            rng=random.Random(1),
        )

    async def run(self, member: PopMember) -> list[dict[str, Any]]:
        async with asyncio.timeout(5):
            await member.run(asyncio.Event(), self.drained, None)
        self.history.close()
        return ops_of(self.path)


async def test_a_member_records_where_messages_stood_and_by_which_receipt(tmp_path: Path) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 4), _popped("b", 0, retry=True)]])
    ops = await rig.run(rig.member(NOTHING_ELSE))
    pop, *acks, last = ops
    assert [op["f"] for op in ops] == ["pop", "ack", "ack", "pop"]
    places = [(row["value"], row["topic"], row["offset"]) for row in pop["messages"]]
    assert places == [("a", "pops", 4), ("b", "%RETRY%G_pops", 0)]
    assert [row["reconsume"] for row in pop["messages"]] == [0, 1]
    assert [(ack["ref"], ack["messages"]) for ack in acks] == [
        (pop["ref"], [row]) for row in pop["messages"]
    ]
    assert pop["due"] - pop["t_invoke"] <= 1.2 * NOTHING_ELSE.invisible_ms * 1_000_000
    assert last["messages"] == []
    assert last["ref"] != pop["ref"]
    assert rig.owed.is_empty(0)


async def test_a_refused_acknowledgement_is_made_again_and_an_unanswered_one_is_in_doubt(
    tmp_path: Path,
) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 0)]])
    errors = [BrokerUnreachableError("gone"), UnansweredError("late"), UnansweredError("late")]

    def fail(popped: Sequence[PoppedMessage]) -> None:
        raise errors.pop(0)

    rig.consumer.on_ack = fail
    ops = await rig.run(rig.member(NOTHING_ELSE))
    assert [op["type"] for op in ops if op["f"] == "ack"] == ["fail", "info", "info"]
    now_s = asyncio.get_running_loop().time()
    assert not rig.owed.is_empty(now_s)
    assert rig.owed.is_empty(now_s + 60)


async def test_in_order_nothing_behind_a_message_that_is_left_is_acknowledged(
    tmp_path: Path,
) -> None:
    rig = _Rig(tmp_path, [[_popped(value, at, order=True) for at, value in enumerate("abc")]])
    section = dataclasses.replace(NOTHING_ELSE, leave_share=1.0)
    ops = await rig.run(rig.member(section, in_order=True))
    assert [op["f"] for op in ops] == ["pop", "pop"]
    assert not rig.owed.is_empty(1e12)


async def test_in_order_messages_behind_one_that_is_skipped_are_acknowledged(
    tmp_path: Path,
) -> None:
    rig = _Rig(tmp_path, [[_popped(value, at, order=True) for at, value in enumerate("abcdefgh")]])
    section = dataclasses.replace(NOTHING_ELSE, skip_share=0.4)
    ops = await rig.run(rig.member(section, in_order=True))
    acked = {row["offset"] for op in ops if op["f"] == "ack" for row in op["messages"]}
    assert 0 < len(acked) < 8
    assert max(acked) >= len(acked), "one before it is missing"


async def test_what_takes_too_long_takes_two_members_so_long(tmp_path: Path) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 0)]] * 3)
    section = dataclasses.replace(NOTHING_ELSE, late_share=1.0, invisible_ms=60_000)
    ops = await rig.run(rig.member(section))
    assert [op["f"] for op in ops] == ["pop", "pop", "pop", "ack", "pop"]
    assert ops[3]["ref"] == ops[2]["ref"]


async def test_work_that_takes_longer_than_its_time_prolongs_it(tmp_path: Path) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 0)], *[[]] * 18])
    section = dataclasses.replace(NOTHING_ELSE, work_share=1.0, invisible_ms=500, poll_ms=0)
    ops = await rig.run(rig.member(section))
    pop, *changes, ack = [op for op in ops if op.get("messages")]
    assert (pop["f"], {change["f"] for change in changes}, ack["f"]) == ("pop", {"change"}, "ack")
    receipts = [pop["ref"], *(change["key"] for change in changes)]
    assert [*(change["ref"] for change in changes), ack["ref"]] == receipts
    assert changes[0]["t_invoke"] - pop["t_complete"] > 200_000_000, "it did not work before that"


async def test_in_order_one_message_is_given_back_early_and_the_others_are_held(
    tmp_path: Path,
) -> None:
    popped = [_popped(value, at, order=True) for at, value in enumerate("abc")]
    rig = _Rig(tmp_path, [popped, *[[]] * 8])
    section = dataclasses.replace(NOTHING_ELSE, shorten_share=1.0, invisible_ms=500, poll_ms=0)
    ops = await rig.run(rig.member(section, in_order=True))
    pop, change, *acks = [op for op in ops if op.get("messages")]
    assert [op["f"] for op in (pop, change, *acks)] == ["pop", "change", "ack", "ack", "ack"]
    assert change["due"] < min(acks[0]["t_invoke"], pop["due"])
    assert [ack["messages"][0]["offset"] for ack in acks] == [0, 1, 2]


async def test_a_change_gives_a_new_receipt(tmp_path: Path) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 0, order=True)]])
    section = dataclasses.replace(NOTHING_ELSE, change_share=1.0)
    ops = await rig.run(rig.member(section, in_order=True))
    pop, change, ack = ops[:3]
    assert (change["f"], change["ref"], ack["ref"]) == ("change", pop["ref"], change["key"])
    assert change["key"] != pop["ref"]


async def test_a_crash_in_the_middle_of_an_acknowledgement_leaves_it_in_doubt(
    tmp_path: Path,
) -> None:
    rig = _Rig(tmp_path, [[_popped("a", 0)]])
    begun = asyncio.Event()

    async def hang(popped: PoppedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    rig.consumer.ack = hang  # type: ignore[method-assign]  # a broker that never answers
    work = asyncio.create_task(rig.member(NOTHING_ELSE).run(asyncio.Event(), rig.drained, None))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    rig.history.close()
    assert [op["type"] for op in ops_of(rig.path)] == ["ok", "info"]
    assert rig.owed.is_empty(asyncio.get_running_loop().time() + 60)
