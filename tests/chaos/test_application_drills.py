"""Drills of the part `applications`, each alone: what they expect holds, and not with a mistake of
the client that is planted in this process; a drill that does not end is ended."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from chaos.workload.parts.applications.asked_again import AskedAgain
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.applications.decided import EndedTransactions
from chaos.workload.parts.applications.sought import SoughtPlaces
from client.connection import answers
from client.consume.lite_pull_consumer import LitePullConsumer
from client.errors import OffsetOutOfRangeError
from client.message import Message, MessageQueue
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
