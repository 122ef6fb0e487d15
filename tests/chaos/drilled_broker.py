"""A broker with one message, and a drill that sends to it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from broker.process.server import Broker
from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.parts.common import drill as drill_module
from chaos.workload.parts.common.drill import Drill, Stored
from chaos.workload.parts.common.leader_requests import create_topic_command
from client.connection.instance import ClientInstance
from client.connection.send_codec import prepare_message
from client.errors import BrokerRefusedError
from client.message import Message, MessageQueue
from remoting.connections.rpc import RemotingClient
from remoting.protocol.command import RemotingCommand
from tests.broker.secured import broker_with

TOPIC = "drills"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


@asynccontextmanager
async def drilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> AsyncIterator[tuple[Broker, Drill]]:
    """A broker with one message, and a drill that sends to it."""
    client = RemotingClient()
    async with broker_with(tmp_path) as broker, contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(client.close)
        address = broker.config.listen

        async def request_leader(
            _: object, __: str, make: object, *, timeout_ms: int, accept: object
        ) -> tuple[RemotingCommand, str]:
            command = cast("type[RemotingCommand]", make)()
            answer = await client.request(address, command, timeout_ms)
            if answer.code != 0 and answer.code not in cast("set[int]", accept):
                raise BrokerRefusedError(answer.code, answer.remark, address)
            return answer, address

        monkeypatch.setattr(drill_module, "request_leader", request_leader)
        made = create_topic_command(TOPIC, queues=1, perm=6)
        assert (await client.request(address, made, 5_000)).code == 0
        message = Message(topic=TOPIC, body=b"b", uniq_key="k", born_timestamp_ms=1)
        command = prepare_message(message, group="P", compression=None).command(QUEUE)
        sent = await client.request(address, command, 5_000)
        stored = Stored(
            offset=0,
            value="v",
            tag="",
            uniq_key="k",
            keys=(),
            offset_msg_id=sent.ext_fields["msgId"],
            command=command,
            sent_s=0.0,
        )
        with HistoryWriter(tmp_path / "history", started_ns=0) as history:
            scenario = SimpleNamespace(cluster=SimpleNamespace(access=False))
            drill = Drill(
                cast(WorkContext, SimpleNamespace(node=lambda address: "n0", scenario=scenario)),
                cast(tuple[ClientInstance, ClientInstance], (None, None)),
                Actor(history, root="d", client="d", client_group="g"),
                QUEUE,
                [stored],
                queue_count=1,
                ends=asyncio.Event(),
                rng=random.Random(seed),
            )
            yield broker, drill
