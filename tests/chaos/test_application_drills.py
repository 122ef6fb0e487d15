"""Drills of the part `applications`, each alone: what they expect holds, and not with a mistake of
the client that is planted in this process; a drill that does not end is ended."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.admin.consume_stats import ConsumeStatsProcessor
from broker.transaction.check_schedule import CheckSchedule
from chaos.workload.parts.applications import bench, levels, renewals
from chaos.workload.parts.applications.asked_again import AskedAgain
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.applications.decided import EndedTransactions
from chaos.workload.parts.applications.immune import ImmuneHalf
from chaos.workload.parts.applications.levels import LevelProgress
from chaos.workload.parts.applications.polls import PollingMember
from chaos.workload.parts.applications.popped import PoppedOn
from chaos.workload.parts.applications.renewals import UnansweredRenewals
from chaos.workload.parts.applications.sought import SoughtPlaces
from chaos.workload.parts.applications.stopped import StoppedClients
from client.connection import answers
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.queue_locks import QueueLocks
from client.errors import OffsetOutOfRangeError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from tests.chaos.part_at_work import asked_of, drill_alone

pytestmark = pytest.mark.timeout(180)


async def test_a_decision_behind_another_is_a_definite_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "decided", EndedTransactions) == set()
    for winner in ("discard", "commit", "rollback"):
        assert f"commit of a half behind its {winner}" in asked_of(tmp_path)


async def test_a_decision_that_lost_and_passes_for_unknown_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_DECIDED", re.compile("transaction already (committed|rolled)"))
    wrong = await drill_alone(tmp_path, monkeypatch, "decided", EndedTransactions)
    assert wrong == {f"{each} of a half behind its discard" for each in ("commit", "rollback")}


async def test_an_immune_half_is_checked_when_it_is_immune_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "immune", ImmuneHalf) == set()
    assert asked_of(tmp_path) == "whether a half that is immune for 4 s is checked, within 6.5 s"


async def test_an_immune_half_that_is_checked_late_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_immune = CheckSchedule.put_immune

    def put(schedule: CheckSchedule, queue_offset: int, until_ms: int) -> None:
        put_immune(schedule, queue_offset, until_ms + 10_000)

    monkeypatch.setattr(CheckSchedule, "put_immune", put)
    monkeypatch.setattr(bench, "BUSY", 1)
    wrong = await drill_alone(tmp_path, monkeypatch, "immune", ImmuneHalf)
    assert wrong == {"whether a half that is immune for 4 s is checked, within 6.5 s"}


async def test_batches_that_wait_are_polled_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "polls", PollingMember) == set()
    assert "messages of a poll of 4 at most" in asked_of(tmp_path)


async def test_a_poll_that_returns_too_many_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = LitePullConsumer.poll

    async def twice(
        consumer: LitePullConsumer, timeout_ms: int | None = None
    ) -> list[DeliveredMessage]:
        return [*await poll(consumer, timeout_ms), *await poll(consumer, 1)]

    monkeypatch.setattr(LitePullConsumer, "poll", twice)
    wrong = await drill_alone(tmp_path, monkeypatch, "polls", PollingMember)
    assert "messages of a poll of 4 at most" in wrong


async def test_a_message_is_answered_each_time_that_it_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "asked-again", AskedAgain) == set()
    assert "replies to one message that is requested 3 times" in asked_of(tmp_path)


async def test_requests_that_share_a_key_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Producer.request

    async def keep_the_key(producer: Producer, message: Message, *how: Any, **more: Any) -> Any:
        message.uniq_key = message.uniq_key or producer.instance.next_uniq_key(0)
        return await request(producer, message, *how, **more)

    monkeypatch.setattr(Producer, "request", keep_the_key)
    wrong = await drill_alone(tmp_path, monkeypatch, "asked-again", AskedAgain)
    assert wrong == {"different keys under which it is consumed"}


async def test_a_member_seeks_to_both_ends_of_its_queue_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "sought", SoughtPlaces) == set()
    for offset in (0, 5, 6, -1):
        assert f"seek to {offset} in a queue of 0 to 5" in asked_of(tmp_path)


async def test_an_end_that_is_refused_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek = LitePullConsumer.seek

    async def seek_to_messages(member: LitePullConsumer, queue: MessageQueue, offset: int) -> None:
        if offset == await member._requests.max_offset(queue):
            raise OffsetOutOfRangeError("no message stands there")
        await seek(member, queue, offset)

    monkeypatch.setattr(LitePullConsumer, "seek", seek_to_messages)
    wrong = await drill_alone(tmp_path, monkeypatch, "sought", SoughtPlaces)
    assert {"seek to 0 in a queue of 0 to 0", "seek to 5 in a queue of 0 to 5"} <= wrong


class _Endless:
    """Waits for what never comes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        await asyncio.Event().wait()


async def test_a_drill_that_does_not_end_is_ended_and_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = await drill_alone(tmp_path, monkeypatch, "idle", _Endless, ends_s=0.05)
    assert wrong == {"what the clients of applications-idle did"}


async def test_stopped_clients_end_what_they_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "stopped", StoppedClients) == set()
    assert "sends under way at a stop that are in no trace, within 5 s" in asked_of(tmp_path)
    assert "offset of a group whose member was stopped at work, within 3 s" in asked_of(tmp_path)


async def test_a_tracer_that_stops_first_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Producer.stop

    async def stop_tracer_first(producer: Producer) -> None:
        if producer._tracer is not None:
            await producer._tracer.stop(producer.settings.timeout_ms)
        await stop(producer)

    monkeypatch.setattr(Producer, "stop", stop_tracer_first)
    wrong = await drill_alone(tmp_path, monkeypatch, "stopped", StoppedClients)
    assert wrong == {"sends under way at a stop that are in no trace, within 5 s"}


@pytest.mark.parametrize("is_lost", [False, True], ids=["unanswered", "taken for refused"])
async def test_a_queue_without_renewals_is_kept(
    is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = QueueLocks._request_quietly
    unheard = False

    @contextlib.asynccontextmanager
    async def lose_answers(_: Bench) -> AsyncIterator[None]:
        nonlocal unheard
        unheard = True
        yield
        unheard = False

    async def answer(locks: QueueLocks, *asked: Any) -> set[MessageQueue] | None:
        if not unheard:
            return await request(locks, *asked)
        return set() if is_lost else None

    monkeypatch.setattr(Bench, "unheard", lose_answers)
    monkeypatch.setattr(QueueLocks, "_request_quietly", answer)
    monkeypatch.setattr(renewals, "UNHEARD_S", 1.0)
    monkeypatch.setattr(renewals, "GIVEN_S", 3.0)
    wrong = await drill_alone(tmp_path, monkeypatch, "renewals", UnansweredRenewals)
    question = "offsets that an ordered member was given whose renewals went unanswered"
    assert question in asked_of(tmp_path)
    assert [question in each for each in wrong] == [True] * is_lost


async def test_progress_is_by_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "levels", LevelProgress) == set()
    assert "whether 3 deliveries are in the progress of their level" in asked_of(tmp_path)


async def test_progress_under_another_level_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "LEVEL", 1)
    table = ConsumeStatsProcessor._all_delay_offsets

    def one_less(stats: ConsumeStatsProcessor, request: Any) -> None:
        offsets = stats._replica.state.delay_offsets
        stats._replica.state.delay_offsets = {level - 1: at for level, at in offsets.items()}
        try:
            table(stats, request)
        finally:
            stats._replica.state.delay_offsets = offsets

    monkeypatch.setattr(ConsumeStatsProcessor, "_all_delay_offsets", one_less)
    wrong = await drill_alone(tmp_path, monkeypatch, "levels", LevelProgress)
    assert wrong == {"whether 3 deliveries are in the progress of their level"}


async def test_what_a_pop_would_find_again_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await drill_alone(tmp_path, monkeypatch, "popped", PoppedOn) == set()
    assert "whether a pop would find what was popped and left, within 4 s" in asked_of(tmp_path)
