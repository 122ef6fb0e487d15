"""Drills: what becomes of an answer that is not the expected one, and of one that does not come."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.parts.common import drill as drill_module
from chaos.workload.parts.common.drill import Drill, EndedError, Unsure
from chaos.workload.parts.drills.handles import Handle, ack_body
from chaos.workload.parts.drills.owners import Notices
from chaos.workload.parts.drills.properties import block_of, parsed
from chaos.workload.parts.drills.stretches import _Step
from chaos.workload.parts.drills.subscriptions import _show_passed
from client.connection.instance import ClientInstance
from client.errors import UnansweredError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.pop_handle import PopHandle
from tests.chaos.histories import ops_of

QUEUE = MessageQueue("T", "broker-a", 1)
HANDLE = Handle(
    start=3, pop_ms=17, invisible_ms=60, revive_queue=0, broker_name="broker-a", queue_id=1
)
Answer = Callable[[], RemotingCommand]


def _answer(code: int, **fields: str) -> Answer:
    return lambda: RemotingCommand(code=code, ext_fields=fields)


def _silence() -> RemotingCommand:
    raise UnansweredError("nobody answers")


async def _ask(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    *,
    ended: bool = False,
    twice: bool = False,
) -> dict[str, Any]:
    """Ask for what has to be answered with code 0; return the row, and what was raised."""

    async def request_leader(*_: object, **__: object) -> tuple[RemotingCommand, str]:
        return answer(), "127.0.0.1:1"

    monkeypatch.setattr(drill_module, "request_leader", request_leader)
    ends = asyncio.Event()
    if ended:
        ends.set()
    raised = ""
    with HistoryWriter(tmp_path / "history", started_ns=0) as history:
        drill = Drill(
            cast(WorkContext, SimpleNamespace(node=lambda address: "n0")),
            cast(tuple[ClientInstance, ClientInstance], (None, None)),
            Actor(history, root="d", client="d", client_group="g"),
            QUEUE,
            (),
            queue_count=2,
            ends=ends,
            rng=random.Random(1),
        )
        fields: Mapping[str, object] = drill.place(consumerGroup="g")
        code = RequestCode.LOCK_BATCH_MQ
        try:
            if twice:
                requests = [(fields, b""), (fields, b"")]
                await drill.request_twice("a lock", code, requests, expected=["0", "0"])
            else:
                await drill.request("a lock", code, fields, expected="0", changes=True)
        except (Unsure, EndedError) as error:
            raised = type(error).__name__
    rows = list(ops_of(tmp_path / "history"))
    return {"raised": raised} | (rows[0] if rows else {})


async def _wait(tmp_path: Path, shown: list[str], *, stays: bool = False) -> dict[str, Any]:
    """Wait for a moment until "b" is shown; return the row, and what was raised."""
    raised = ""
    with HistoryWriter(tmp_path / "history", started_ns=0) as history:
        drill = Drill(
            cast(WorkContext, None),
            cast(tuple[ClientInstance, ClientInstance], (None, None)),
            Actor(history, root="d", client="d", client_group="g"),
            QUEUE,
            (),
            queue_count=2,
            ends=asyncio.Event(),
            rng=random.Random(1),
        )
        try:
            await drill.wait_for(
                "a notice",
                lambda: shown.pop(0) if len(shown) > 1 else shown[0],
                expected="b",
                within_s=0.1,
                stays=stays,
            )
        except Unsure:
            raised = "Unsure"
    (row,) = ops_of(tmp_path / "history")
    return row | {"raised": raised}


async def test_of_two_requests_at_one_time_one_has_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [_answer(0), _silence]

    def answer() -> RemotingCommand:
        return answers.pop()()

    row = await _ask(tmp_path, monkeypatch, answer, twice=True)
    assert (row["raised"], row["type"], row["error"]) == ("Unsure", "info", "nobody answers")


async def test_what_is_shown_in_time_was_waited_for(tmp_path: Path) -> None:
    row = await _wait(tmp_path, ["a", "b"])
    assert (row["status"], row["decision"], row["raised"]) == ("b", "calm", "")


async def test_what_never_is_shown_ends_the_drill(tmp_path: Path) -> None:
    row = await _wait(tmp_path, ["a"])
    assert (row["ref"], row["status"], row["raised"]) == ("b", "a", "Unsure")


async def test_what_is_not_to_change_is_looked_at_until_the_end(tmp_path: Path) -> None:
    shown = ["b"]
    asyncio.get_running_loop().call_later(0.02, shown.__setitem__, 0, "c")
    row = await _wait(tmp_path, shown, stays=True)
    assert (row["status"], row["raised"]) == ("c", "Unsure")


async def test_other_answer_is_recorded_and_ends_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await _ask(tmp_path, monkeypatch, _answer(29))
    assert (row["type"], row["ref"], row["status"], row["node"]) == ("ok", "0", "29", "n0")
    assert row["raised"] == "Unsure"


async def test_expected_answer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = await _ask(tmp_path, monkeypatch, _answer(0))
    assert (row["type"], row["status"], row["raised"]) == ("ok", "0", "")


async def test_unanswered_change_ends_the_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await _ask(tmp_path, monkeypatch, _silence)
    assert (row["type"], row["raised"]) == ("info", "Unsure")


async def test_nothing_is_asked_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _ask(tmp_path, monkeypatch, _answer(0), ended=True) == {"raised": "EndedError"}


def test_a_pull_passes_over_nothing_that_is_wanted() -> None:
    step = _Step([5, 9], 3, 2)
    assert step.show(_answer(20, nextBeginOffset="5")()) == step.expected
    assert step.show(_answer(20, nextBeginOffset="6")()).startswith("passed over [5]")
    assert "goes on False" in step.show(_answer(20, nextBeginOffset="3")())


def test_notices_are_counted_by_group_and_client() -> None:
    listeners: list[Callable[[object, RemotingCommand], None]] = []
    instance = SimpleNamespace(listen=lambda code, listener: listeners.append(listener))
    notices = Notices(cast(list[ClientInstance], [instance, instance]))
    listeners[1](None, RemotingCommand(code=40, ext_fields={"consumerGroup": "g"}))
    assert [notices.count("g", number) for number in (0, 1)] == [0, 1]
    assert notices.count("other", 1) == 0


def test_handles_are_those_that_brokers_read() -> None:
    known = PopHandle.parse(HANDLE.text(5))
    assert (known.start_offset, known.pop_ms, known.queue_id, known.offset) == (3, 17, 1, 5)
    assert not known.is_order
    short = PopHandle.parse_for(HANDLE.text(5, is_short=True), 5)
    assert (short.start_offset, short.pop_ms, short.queue_id, short.offset) == (3, 17, 1, 5)


def test_acknowledged_offsets_are_bits_from_the_first_on() -> None:
    body = json.loads(ack_body(QUEUE, "g", [(0, HANDLE), (2, HANDLE), (9, HANDLE), (13, HANDLE)]))
    told = [(ack["so"], base64.b64decode(ack["b"])) for ack in body["acks"]]
    assert told == [(0, bytes([0b101, 0b10])), (13, bytes([0b1]))]


@pytest.mark.parametrize("offsets", [[3, 5, 300], [4_095, 4_096, 4_097], [3]])
@pytest.mark.parametrize("reach", [3, 10, 1_000])
def test_however_rows_are_cut_they_name_the_same_offsets(offsets: list[int], reach: int) -> None:
    pairs = [(offset, HANDLE) for offset in offsets]
    whole = _named_by(json.loads(ack_body(QUEUE, "g", pairs, from_start=True)))
    assert whole == [(HANDLE.start, offsets)]
    cut = _named_by(json.loads(ack_body(QUEUE, "g", pairs, reach=reach)))
    assert [offset for _, named in cut for offset in named] == offsets
    assert all(named[0] == start and named[-1] - start < reach for start, named in cut)


def _named_by(body: Mapping[str, Any]) -> list[tuple[int, list[int]]]:
    """Return the start of each row, and the offsets that it names."""
    rows = []
    for ack in body["acks"]:
        bits = int.from_bytes(base64.b64decode(ack["b"]), "little")
        named = [ack["so"] + at for at in range(bits.bit_length()) if bits >> at & 1]
        rows.append((ack["so"], named))
    return rows


def test_messages_of_two_pops_are_acknowledged_by_two_entries() -> None:
    later = dataclasses.replace(HANDLE, pop_ms=18)
    body = json.loads(ack_body(QUEUE, "g", [(6, HANDLE), (5, later), (4, HANDLE)]))
    told = [(ack["pt"], ack["so"], base64.b64decode(ack["b"])) for ack in body["acks"]]
    assert told == [(17, 4, bytes([0b101])), (18, 5, bytes([0b1]))]


def test_a_block_says_what_clients_read_there() -> None:
    """The model of a drill, held against RocketMQ's rules as they stand in the documentation."""
    block = "a\x01first\x02a\x01last\x02a\x01\x02x\x02\x01nameless\x02b\x01v\x01w\x02\x02c\x01"
    assert parsed(block) == {"a": "last", "b": "v\x01w"}
    assert parsed("") == {}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_drawn_into_a_block_does_not_change_what_it_says(seed: int) -> None:
    entries = [("TAGS", "T1"), ("KEYS", "k1 k2"), ("u_a", "x")]
    assert parsed(block_of(entries, random.Random(seed), has_empty=False)) == dict(entries)
    assert parsed(block_of(entries, random.Random(seed))) == dict(entries)


def test_a_pull_that_goes_on_behind_what_is_wanted_has_passed_it_over() -> None:
    answer = RemotingCommand(code=0, ext_fields={"nextBeginOffset": "5"})
    assert _show_passed(answer, [3, 4, 5]) == "passed over [3, 4]"
    assert _show_passed(answer, [5]) == "passed over []"
    assert _show_passed(RemotingCommand(code=25, ext_fields={}), [3]) == "passed over []"
    assert _show_passed(RemotingCommand(code=1, ext_fields={}), [3]) == "1 without an offset"
