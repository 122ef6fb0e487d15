"""How the topics of a run are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from chaos.workload import topics
from client.consume.pull_consumer import PullConsumer
from client.message import MessageQueue
from remoting.protocol.command import RemotingCommand


class _Routes:
    groups: dict[str, dict[int, str]] = {"broker-a": {0: "127.0.0.1:1"}}  # noqa: RUF012

    def __init__(self, topic: str) -> None:
        self.read_queues = tuple(MessageQueue(topic, "broker-a", each) for each in (1, 0))

    async def refresh(self, topic: str) -> _Routes:
        return _Routes(topic)


class _Tool:
    """A consumer whose name servers know every topic at once."""

    def __init__(self) -> None:
        self.instance = self
        self.routes = _Routes("")


@pytest.mark.parametrize("attributes", [None, "+message.type=NORMAL"])
def test_topics_are_made_with_their_attributes(
    monkeypatch: pytest.MonkeyPatch, attributes: str | None
) -> None:
    asked: list[RemotingCommand] = []

    async def call(_: object, group: str, make: Callable[[], RemotingCommand], **__: Any) -> None:
        asked.append(make())

    monkeypatch.setattr(topics, "call_group", call)

    async def run() -> list[MessageQueue]:
        return await topics.make_topics(
            cast(PullConsumer, _Tool()),
            ["broker-a"],
            ["orders"],
            queues=2,
            attributes=attributes,
            deadline_s=asyncio.get_running_loop().time() + 5,
        )

    made = asyncio.run(run())
    assert [each.queue_id for each in made] == [0, 1]
    assert [each.ext_fields.get("attributes") for each in asked] == [attributes]
