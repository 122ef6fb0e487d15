"""Mistakes of a broker, or of the client, that are planted in this process: what parts of the
workload expect holds without them, and not with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from broker.delay import timers
from broker.delay.timers import checked_waiting
from broker.entry.payload import UNIT, DeleteGroupCommand
from broker.index import message_keys
from broker.leader.proposer import Proposal
from broker.pop.pop import PopProcessor
from broker.pull.pull import PullProcessor
from broker.request import long_polling
from broker.send import duplicates, send
from broker.send.plain_send import PlainSends
from broker.state.offset_resets import OffsetResets
from broker.state.state import BrokerState
from broker.transaction import records
from campaigns.rig.waiting import until
from chaos.workload.parts.applications.deleted_groups import DeletedGroups
from chaos.workload.parts.applications.idle import IdleApplication
from chaos.workload.parts.applications.keys import TWINS, KeyLookups
from chaos.workload.parts.applications.names import NamesOfOthers
from chaos.workload.parts.applications.switched import SwitchedGroups
from chaos.workload.parts.applications.used_again import NamesUsedAgain
from chaos.workload.parts.applications.woken import HeldRequests
from chaos.workload.parts.drills import drills
from chaos.workload.parts.drills.onward import OnwardDrill
from chaos.workload.parts.drills.queues import PullDrill
from chaos.workload.parts.operator import operator
from chaos.workload.parts.operator.effects import SettingEffects
from chaos.workload.parts.operator.halves import HalfEffects
from client.administer.admin import Admin
from client.connection import send_codec
from client.consume import lite_pull_consumer
from client.consume.consume_trace import ConsumeTrace
from client.consume.pop_consumer import PopConsumer
from client.message import DeliveredMessage
from tests.chaos.part_at_work import asked_of, drill_alone, otherwise, part_at_work

DRILLS = "runners = 1\npause_ms = 1\nstretches = 0\n"


async def _onward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drills, "BESIDE", {"drills-onward": (OnwardDrill, 40)})
    monkeypatch.setattr(drills, "CLIENTS", {})
    monkeypatch.setattr(drills, "runner_kinds", lambda *_, **__: {"pull": PullDrill})
    monkeypatch.setattr(drills, "OFTEN", ())
    async with part_at_work(tmp_path, "drills", DRILLS, load_s=2):
        await until(lambda: asked_of(tmp_path).count("make topic") >= 10, seconds=60)


@pytest.mark.timeout(180)
async def test_what_is_sent_on_with_its_key_is_stored_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _onward(tmp_path, monkeypatch)
    assert otherwise(tmp_path) == set()
    for way in ("by itself", "in a batch", "with a delay"):
        assert way in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_a_key_of_another_topic_that_passes_for_a_retry_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "topic_of", lambda _: ANY)
    await _onward(tmp_path, monkeypatch)
    assert any("of what was stored there, by itself" in key for key in otherwise(tmp_path))


@pytest.mark.timeout(180)
async def test_what_a_deleted_group_has_popped_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "deleted-groups", DeletedGroups) == set()
    for how in ("made again", "made by a pop"):
        assert f"that a deleted group has popped, {how}" in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_a_deletion_that_drops_what_was_popped_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = BrokerState._delete_group

    def drop(state: BrokerState, command: DeleteGroupCommand) -> None:
        delete(state, command)
        state.pop.drop_group(command.name)

    monkeypatch.setattr(BrokerState, "_delete_group", drop)
    # Nothing comes.
    monkeypatch.setattr("chaos.workload.parts.applications.deleted_groups.AGAIN_S", 2.0)
    wrong = await drill_alone(tmp_path, monkeypatch, "deleted-groups", DeletedGroups)
    assert any("that a deleted group has popped, made again" in key for key in wrong)


@pytest.mark.timeout(180)
async def test_keys_in_every_writing_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.workload.parts.applications.keys.TWINS", TWINS[2:3])
    assert await drill_alone(tmp_path, monkeypatch, "keys", KeyLookups) == set()
    assert "\u4e2d\u6587" in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_keys_that_are_hashed_as_latin_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_keys = message_keys.hash_keys

    def as_latin(topics: Any, keys: Sequence[str]) -> Any:
        return hash_keys(
            topics, [key.encode("latin-1", "replace").decode("latin-1") for key in keys]
        )

    monkeypatch.setattr(message_keys, "hash_keys", as_latin)
    monkeypatch.setattr("chaos.workload.parts.applications.keys.TWINS", TWINS[2:3])
    wrong = await drill_alone(tmp_path, monkeypatch, "keys", KeyLookups)
    assert any("\u4e2d\u6587" in key for key in wrong)


@pytest.mark.timeout(180)
async def test_what_waits_to_be_polled_is_not_sent_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "idle", IdleApplication) == set()
    assert "polls that takes its time" in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_a_limit_of_what_waits_to_be_polled_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = dataclasses.replace

    def limited(settings: Any, **changes: Any) -> Any:
        changes.pop("consume_timeout_ms", None)
        return replace(settings, **changes)

    monkeypatch.setattr(lite_pull_consumer.dataclasses, "replace", limited)
    wrong = await drill_alone(tmp_path, monkeypatch, "idle", IdleApplication)
    assert "what an application polls that takes its time" in wrong


@pytest.mark.timeout(180)
async def test_a_held_request_gets_nothing_that_its_group_may_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "switched", SwitchedGroups) == set()
    for kind in ("pop", "pull", "pull by a heartbeat's subscription"):
        assert f"what a {kind} is given that is held" in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_a_held_pop_that_is_answered_by_what_it_might_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PopProcessor, "_run_again", PopProcessor._run)
    wrong = await drill_alone(tmp_path, monkeypatch, "switched", SwitchedGroups)
    for how in ("its group is switched off", "its topic is taken from readers"):
        assert f"what a pop is given that is held while {how}" in wrong


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_a_pull_whose_right_is_asked_for_once_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = PullProcessor._again

    def run_again(pulls: PullProcessor, pull: Any, **how: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if pull.header is not None:
                patch.setattr(PullProcessor, "_readable", lambda *_: None)
            again(pulls, pull, **how)

    monkeypatch.setattr(PullProcessor, "_again", run_again)
    # What is not given again is waited for in vain.
    monkeypatch.setattr("chaos.workload.parts.applications.switched.GIVEN_S", 0.5)
    wrong = await drill_alone(tmp_path, monkeypatch, "switched", SwitchedGroups)
    kind = "pull by a heartbeat's subscription"
    assert f"what a {kind} is given that is held while its group is switched off" in wrong
    assert "what a pull is given that is held while its group is switched off" not in wrong


@pytest.mark.timeout(180)
async def test_names_that_are_used_again_have_nothing_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "used-again", NamesUsedAgain) == set()
    for what in ("stored right behind the deletion", "deleted with its offsets after a reset"):
        assert what in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_resets_that_outlive_their_group_and_sends_that_go_with_a_topic_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OffsetResets, "drop_group", lambda *_: None)

    def together(**about: Any) -> Proposal:
        return Proposal(**{**about, "ends_batch": False})

    monkeypatch.setattr("broker.request.commit.Proposal", together)
    wrong = await drill_alone(tmp_path, monkeypatch, "used-again", NamesUsedAgain)
    assert "what stands where a send was stored right behind the deletion of its topic" in wrong
    for how in ("with", "without"):
        assert (
            f"offset that a group has committed whose name was deleted {how} its offsets after a"
            " reset" in wrong
        )


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_a_member_that_names_the_last_of_its_topics_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "names", NamesOfOthers) == set()
    subscribe = PopConsumer._subscribe

    def subscribe_alone(popper: PopConsumer, *about: Any) -> Any:
        popper._subscriptions.clear()
        return subscribe(popper, *about)

    monkeypatch.setattr(PopConsumer, "_subscribe", subscribe_alone)
    wrong = await drill_alone(tmp_path / "again", monkeypatch, "names", NamesOfOthers)
    assert any("-pop is said to subscribe" in key for key in wrong)


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_a_held_request_that_looks_at_the_first_tag_alone_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "woken", HeldRequests) == set()

    class _Unit:
        @staticmethod
        def iter_unpack(units: bytes) -> Any:
            return [UNIT.unpack_from(units)]

    monkeypatch.setattr(long_polling, "UNIT", _Unit)
    wrong = await drill_alone(tmp_path / "again", monkeypatch, "woken", HeldRequests)
    assert "what a pull is given that waits for blue, when red and blue are stored" in wrong
    assert "what a pull is given that waits for blue, when blue and red are stored" not in wrong


async def _operate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, *, about: str
) -> set[str]:
    """Have an operator show the effects of settings on sends, or what becomes of halves; return
    what was otherwise, of that which is `about` it."""

    async def show(
        _: object, __: object, effects: SettingEffects, halves: HalfEffects, *___: object
    ) -> None:
        await {"effects": effects, "halves": halves}[what].show()

    monkeypatch.setattr(operator._Operator, "_show_group", show)
    monkeypatch.setattr(operator, "OTHERS_END_S", 0.0)
    keys = "change_s = 0.1\ncalm_s = 0\ntakes_write = 0\n"
    async with part_at_work(tmp_path, "operator", keys, load_s=0.1):
        pass
    return {key for key in otherwise(tmp_path) if about in key}


@pytest.mark.timeout(180)
async def test_settings_are_in_force_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _operate(tmp_path, monkeypatch, "effects", about="send") == set()
    for words in ("maxMessageSize is 10", "brokerPermission is 4", "timerWheelEnable is false"):
        assert f"send_message_v2 where {words}" in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_sends_under_the_settings_of_before_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of = PlainSends._plan_of

    def remembered(sends: Any, name: str) -> Any:
        return sends._plans.get(name) or plan_of(sends, name)

    monkeypatch.setattr(PlainSends, "_plan_of", remembered)
    wrong = await _operate(tmp_path, monkeypatch, "effects", about="send")
    for words in ("maxMessageSize is 10", "brokerPermission is 4"):
        assert f"send_message_v2 where {words}" in wrong


@pytest.mark.timeout(180)
async def test_levels_that_need_the_timer_wheel_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(replica: Any, properties: Any) -> Any:
        found = checked_waiting(replica, properties)
        if found is not None:
            timers._check_timers(replica)
        return found

    monkeypatch.setattr(send, "checked_waiting", waiting)
    wrong = await _operate(tmp_path, monkeypatch, "effects", about="send")
    assert "send_message_v2 where timerWheelEnable is false" in wrong


@pytest.mark.timeout(180)
async def test_halves_that_were_taken_are_committed_whatever_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _operate(tmp_path, monkeypatch, "halves", about="half") == set()
    for words in ("timerMaxDelaySec is 1", "timerWheelEnable is false", "comes of half 1"):
        assert words in asked_of(tmp_path)


@pytest.mark.timeout(180)
async def test_a_commit_that_settings_refuse_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "waiting_when_committed", checked_waiting)
    wrong = "\n".join(await _operate(tmp_path, monkeypatch, "halves", about="half"))
    for words in ("timerMaxDelaySec is 1", "timerWheelEnable is false", "comes of half 1"):
        assert words in wrong


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_separators_that_are_sent_and_request_ids_that_are_shared_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def joined(properties: Mapping[str, str]) -> str:
        return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())

    begin = ConsumeTrace.begin

    def begin_again(trace: ConsumeTrace, messages: Sequence[DeliveredMessage]) -> Any:
        monkeypatch.setattr(trace, "_next_id", lambda _: trace._group)
        return begin(trace, messages)

    monkeypatch.setattr(send_codec, "properties_text", joined)
    monkeypatch.setattr(ConsumeTrace, "begin", begin_again)
    async with part_at_work(tmp_path, "calls", "rate = 40.0", load_s=2.0):
        await until(lambda: otherwise(tmp_path) != set(), seconds=60)
    wrong = otherwise(tmp_path)
    assert any("send of what may not be sent" in key for key in wrong)
    assert any("request ids in traces that several deliveries share" in key for key in wrong)


@pytest.mark.timeout(180)
async def test_messages_of_a_topic_that_is_only_read_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Admin.query_messages

    async def ask_who_takes_sends(admin: Admin, topic: str, *how: Any, **more: Any) -> Any:
        is_open = (await admin.topic_route(topic)).write_queues
        return await query(admin, topic, *how, **more) if is_open else []

    monkeypatch.setattr("chaos.workload.parts.applications.keys.TWINS", TWINS[2:3])
    monkeypatch.setattr(Admin, "query_messages", ask_who_takes_sends)
    wrong = await drill_alone(tmp_path, monkeypatch, "keys", KeyLookups)
    assert any("times of storing of the newest" in key for key in wrong)
