"""What the part `calls` is made of: texts of traces, and blocking clients on one loop."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.expectations import Expectations
from chaos.workload.parts.calls.admin import contradictions_of
from chaos.workload.parts.calls.blocking import hold_blocking_calls
from chaos.workload.parts.common.trace_records import traces_of
from chaos.workload.same_loop import through_blocking
from client.blocking.sync_clients import SyncAdmin, SyncPopConsumer, SyncPullConsumer
from client.message import MessageQueue
from client.trace.codec import ConsumeReturn, MessageKind, TraceSend, TraceSubAfter, record_text
from tests.chaos.histories import ops_of

QUEUE = MessageQueue("T", "broker-a", 0)


class FakeClient:
    """Answers each call with what it was called with."""

    client_id = "c@1"

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.called: list[object] = []

    async def start(self) -> None:
        self.steps.append("start")

    async def stop(self) -> None:
        self.steps.append("stop")

    def __getattr__(self, name: str) -> Any:
        async def call(*args: object, **named: object) -> object:
            self.called.append((name, args, named))
            return name, args, named

        return call


async def test_calls_go_through_the_blocking_client() -> None:
    client = FakeClient()
    through: Any = through_blocking(cast(Any, client), SyncPullConsumer)
    async with through:
        assert await through.max_offset(QUEUE) == ("max_offset", (QUEUE, None), {})
        assert (await through.pull(QUEUE, 7))[2]["commit_offset"] is None
        assert through.client_id == "c@1", "what the blocking client lacks is the client's own"
        assert await through.crash() == ("crash", (), {})
    assert client.steps == ["start", "stop"]
    assert await through.commit_offset(QUEUE, 5) is None, "the blocking client returns nothing"
    assert client.called[-1] == ("commit_offset", (QUEUE, 5, None), {})
    popped: Any = through_blocking(cast(Any, client), SyncPopConsumer)
    assert (await popped.pop("T", in_order=True))[2]["in_order"] is True


async def _wrongly_passed_on(folder: Path) -> set[str]:
    with HistoryWriter(folder / "history", started_ns=0) as history:
        expectations = Expectations(history, client="c", client_group="g")
        await hold_blocking_calls(expectations, random.Random(1))
    rows = list(ops_of(folder / "history"))
    assert len(rows) > 60
    return {row["key"] for row in rows if row["ref"] != row["status"]}


async def test_every_blocking_call_passes_on_what_it_was_given(tmp_path: Path) -> None:
    assert await _wrongly_passed_on(tmp_path) == set()


async def test_dropped_flag_of_a_blocking_call_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_group(self: SyncAdmin, group: str, *, clean_offsets: bool = False) -> None:
        self._call(self.client.delete_group(group))

    monkeypatch.setattr(SyncAdmin, "delete_group", delete_group)
    assert await _wrongly_passed_on(tmp_path) == {"what SyncAdmin.delete_group passes on"}


def test_figures_of_a_process_have_to_go_together() -> None:
    now_ms = str(time.time_ns() // 1_000_000)
    names = ("commitLogMinOffset", "commitLogMaxOffset", "raftAppliedIndex", "raftCommitIndex")
    counts = ("TotalYesterdayMorning", "TotalTodayMorning", "TotalTodayNow")
    table = dict.fromkeys(names, "7") | {
        f"msg{what}{count}": "3" for what in ("Put", "Get") for count in counts
    }
    table |= {"putMessageTimesTotal": "3", "putMessageSizeTotal": "300"}
    table |= {"bootTimestamp": now_ms, "earliestMessageTimeStamp": now_ms}
    table |= {"brokerActive": "true", "raftRole": "leader", "scheduleMessageOffset_1": "2,3"}
    assert contradictions_of(table) == []
    assert contradictions_of(table | {"raftRole": "follower"}) == ["brokerActive raftRole"]
    assert contradictions_of(table | {"commitLogMinOffset": "8"}) == [
        "commitLogMinOffset commitLogMaxOffset"
    ]
    wrong = {"scheduleMessageOffset_1": "4,3", "bootTimestamp": "0"}
    assert contradictions_of(table | wrong) == ["bootTimestamp", "scheduleMessageOffset_1"]


def test_traces_are_read_field_by_field() -> None:
    sent = TraceSend(
        time_ms=1,
        region="r",
        group="g",
        topic="T",
        msg_id="m",
        tags=None,
        keys=("a", "b"),
        store_host="h:1",
        body_size=3,
        cost_ms=4,
        kind=MessageKind.NORMAL,
        offset_msg_id="o",
        is_success=True,
    )
    after = TraceSubAfter(
        time_ms=1,
        request_id="q",
        msg_id="m",
        cost_ms=2,
        is_success=False,
        keys=(),
        code=ConsumeReturn.FAILED,
    )
    published, ended = traces_of((record_text(sent) + record_text(after)).encode())
    assert (published["kind"], published["keys"], published["tags"]) == ("Pub", "a b", "null")
    assert (published["body_size"], published["success"]) == ("3", "true")
    assert (published["offset_msg_id"], published["store_host"]) == ("o", "h:1")
    assert (ended["kind"], ended["code"], ended["success"]) == ("SubAfter", "4", "false")
