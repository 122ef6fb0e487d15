"""What the part `calls` knows of lists that are split, and of tracers whose messages fail: the
client as it is meets it, and a mistake of any size shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.expectations import Expectations
from chaos.workload.parts.calls.splits import hold_splits
from chaos.workload.parts.calls.tracers import hold_tracers
from client.errors import ClientError
from client.message import Message
from client.produce import batches
from client.trace.tracer import Tracer
from tests.chaos.histories import ops_of

SEEDS = (1, 2, 3)


def _otherwise(folder: Path) -> list[str]:
    rows = list(ops_of(folder / "history"))
    assert rows
    return [row["key"] for row in rows if row["ref"] not in (None, row["status"])]


def _split_otherwise(folder: Path, seed: int) -> list[str]:
    with HistoryWriter(folder / "history", started_ns=0) as history:
        hold_splits(Expectations(history, client="c", client_group="g"), random.Random(seed))
    return _otherwise(folder)


async def _traced_otherwise(folder: Path, seed: int) -> list[str]:
    with HistoryWriter(folder / "history", started_ns=0) as history:
        expectations = Expectations(history, client="c", client_group="g")
        await hold_tracers(expectations, random.Random(seed), asyncio.Event())
    return _otherwise(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_are_split_as_is_expected(tmp_path: Path, seed: int) -> None:
    assert _split_otherwise(tmp_path, seed) == []


def _characters(message: Message) -> int:
    texts = [message.tags or "", message.shard or "", *message.keys]
    texts += [text for pair in message.properties.items() for text in pair]
    return 128 + len(message.body) + sum(len(text) + 2 for text in texts)


def _without_keys(message: Message) -> int:
    return _SIZE(message) - sum(len(key.encode()) + 2 for key in message.keys)


def _generous(message: Message) -> int:
    return _SIZE(message) + 600


_SIZE = batches._size


@pytest.mark.parametrize("size", [_characters, _without_keys, _generous])
def test_size_that_is_counted_otherwise_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Callable[[Message], int]
) -> None:
    monkeypatch.setattr(batches, "_size", size)
    assert _split_otherwise(tmp_path, 1)


@pytest.mark.parametrize("seed", SEEDS)
async def test_traces_are_sent_or_lost_as_is_expected(tmp_path: Path, seed: int) -> None:
    assert await _traced_otherwise(tmp_path, seed) == []


async def _give_up(tracer: Any) -> None:
    """Send as a tracer does, but end with the first message that fails."""
    while tracer._waiting:
        message, count = tracer._next_message()
        try:
            await tracer._sender.send(message)
        except ClientError:
            tracer.lost += count
            return


async def _count_messages(tracer: Any) -> None:
    """Send as a tracer does, but count what is lost by messages."""
    while tracer._waiting:
        message, _ = tracer._next_message()
        try:
            await tracer._sender.send(message)
        except ClientError:
            tracer.lost += 1


@pytest.mark.parametrize("send", [_give_up, _count_messages])
async def test_traces_that_are_not_counted_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, send: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(Tracer, "_send_waiting", send)
    assert await _traced_otherwise(tmp_path, 1)
