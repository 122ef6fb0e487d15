"""What the part `calls` is made of: texts of traces, and blocking clients on one loop."""

from __future__ import annotations

from typing import Any, cast

from chaos.workload.parts.trace_records import traces_of
from chaos.workload.same_loop import through_blocking
from client.blocking.sync_clients import SyncPopConsumer, SyncPullConsumer
from client.message import MessageQueue
from client.trace.codec import ConsumeReturn, MessageKind, TraceSend, TraceSubAfter, record_text

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
