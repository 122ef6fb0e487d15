"""What one small request may cost the group: in bytes of the log, in proposals, in work.

Bits, counts, lists and ranges of a request may each stand for thousands of things. Whatever they
say, what is proposed is bounded by the request's own size and by what the broker holds, so that
nobody's leader falls, and nobody's send is refused, for a frame of some kilobytes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from broker.entry.payload import AckCommand, OffsetCommand, decode_payload
from broker.leader.proposer import Proposal, Proposer
from broker.pop.pop import PopProcessor
from broker.process.request_table import SERVED
from broker.request.request import Request
from broker.send.send import SendProcessor
from campaigns.fuzz.inflation import inflated, inflated_fields
from campaigns.fuzz.structures import Structures
from campaigns.rig.waiting import turns
from raft.replicated_log import LogFullError, ProposalStatus
from remoting.errors import FrameError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.frame import FrameDecoder
from remoting.records.message import encode_batch_body
from tests.broker.proposing import PROPOSING, Situation
from tests.broker.rig import START_MS, FakeConnection, Rig, send_fields

FRAME_SIZE = 60_000
BYTES_PER_BYTE = 24  # a group of `{"groupName":"a"}` has 250 bytes with all its defaults
BYTES_HELD = 32_768  # of the messages, users and names in the situation
PROPOSALS_MAX = 8
CALLS_PER_BYTE, CALLS = 60, 100_000
OF_MEMBERS = {RequestCode.LEDGERMQ_MEMBERS, RequestCode.LEDGERMQ_TRANSFER}


class Cost:
    """What requests propose, and how many functions are called for them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.proposals = 0
        self.calls = 0
        self._submit = Proposer.submit

    async def of(self, act: Callable[[], object]) -> tuple[int, int, int]:
        """(bytes proposed, proposals, calls)."""
        before, self.proposals, self.calls = len(self.rig.log.data), 0, 0
        sys.setprofile(self._count)
        try:
            act()
            await turns(20)
        finally:
            sys.setprofile(None)
        return len(self.rig.log.data) - before, self.proposals, self.calls

    def _count(self, frame: Any, event: str, _: object) -> None:
        self.calls += event.endswith("call")
        if event == "call" and frame.f_code is Proposer.submit.__code__:
            self.proposals += 1


def check(cost: tuple[int, int, int], size: int, what: object) -> None:
    proposed, proposals, calls = cost
    assert proposed <= BYTES_PER_BYTE * size + BYTES_HELD, (what, size, proposed)
    assert proposals <= PROPOSALS_MAX, (what, proposals)
    assert calls <= CALLS_PER_BYTE * size + CALLS, (what, size, calls)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("code", PROPOSING, ids=lambda code: RequestCode(code).name)
async def test_what_is_asked_for_in_bulk_is_bounded(tmp_path, code, seed):
    rng = random.Random(seed)
    for is_spoilt in (False, True):
        at = await Situation.make(tmp_path / str(is_spoilt))
        if code == RequestCode.LEDGERMQ_CHANGE_MEMBER:
            return  # proposes what the consensus core makes of it
        fields, body = PROPOSING[code](at)
        if body[:1] == b"{":
            body = json.dumps(inflated(rng, json.loads(body), FRAME_SIZE)).encode()
        elif code == RequestCode.SEND_BATCH_MESSAGE:
            fields["i"] = "UNIQ_KEY\x01" + "k" * rng.choice((100, 1_000)) + "\x02"
            body = encode_batch_body([(b"", b"", 0)] * 4_000)
        if is_spoilt:
            fields = inflated_fields(rng, fields, FRAME_SIZE)
        size = sum(map(len, fields.values())) + len(body) + 100
        connection = FakeConnection()

        def give(
            at: Situation = at,
            fields: dict[str, str] = fields,
            body: bytes = body,
            connection: FakeConnection = connection,
        ) -> None:
            at.rig.give(at.handlers[code], code, fields, body, connection)

        check(await Cost(at.rig).of(give), size, RequestCode(code).name)
        assert connection.sent
        await at.close()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_fuzzer_makes_is_bounded(tmp_path, seed):
    structures = Structures(seed)
    at = await Situation.make(tmp_path)
    cost, seen = Cost(at.rig), set()
    for _ in range(400):
        frame = structures.next()
        try:
            (command,) = FrameDecoder().feed(frame)
        except FrameError:
            continue  # no request
        handler = at.handlers.get(command.code)
        if handler is None or command.code in OF_MEMBERS:
            continue
        seen.add(command.code)

        def give(command: Any = command, handler: Callable[[Request], None] = handler) -> None:
            body, code = command.body, command.code
            at.rig.give(handler, code, command.ext_fields, body, FakeConnection())

        check(await cost.of(give), len(frame), (command.code, command.ext_fields))
    assert len(seen) > 40
    await at.close()


# Acknowledgements ---------------------------------------------------------------------------------


@pytest.mark.parametrize("held_count", [0, 3, 300])
async def test_a_batch_of_acks_names_what_is_held_alone(tmp_path, held_count):
    rng = random.Random(held_count)
    at = await Situation.make(tmp_path)
    pop = at.rig.state.pop
    held: dict[tuple[str, int], dict[int, int]] = {}
    for queue_id in (0, 1):
        offsets = sorted(rng.sample(range(10_000), held_count))
        times = {offset: START_MS + rng.randrange(2) for offset in offsets}
        for offset, pop_ms in times.items():
            pop._hold(("G", "T", queue_id), offset, _holding(pop_ms))
        held["T", queue_id] = times
    acks, wanted = [], set()
    for _ in range(40):
        queue_id, start, pop_ms = (
            rng.randrange(3),
            rng.randrange(9_000),
            START_MS + rng.randrange(3),
        )
        bits = rng.randbytes(rng.choice((1, 4, 512)))
        acks.append(
            {"c": "G", "t": "T", "so": start, "q": queue_id, "pt": pop_ms, "r": "0", "rq": 0,
             "b": base64.b64encode(bits).decode()}
        )  # fmt: skip
        for bit in range(8 * len(bits)):
            mine = held.get(("T", queue_id), {}).get(start + bit) == pop_ms
            if bits[bit // 8] >> bit % 8 & 1 and mine:
                wanted.add((queue_id, start + bit, pop_ms))
    body = json.dumps({"acks": acks}).encode()
    code = RequestCode.BATCH_ACK_MESSAGE
    answer = await at.rig.ask(at.handlers[code], code, {}, body)
    assert answer.code == ResponseCode.SUCCESS
    commands = decode_payload(at.rig.log.entries[-1].payload).commands
    assert all(isinstance(command, AckCommand) for command in commands)
    rows = [(command.queue_id, *row) for command in commands for row in command.rows]
    assert len(rows) == len(wanted)
    assert set(rows) == wanted
    await at.close()


def _holding(pop_ms: int) -> Any:
    from broker.state.pop_state import Holding

    return Holding(pop_ms, pop_ms + 60_000)


async def test_an_acknowledgement_of_nothing_still_proves_who_leads(tmp_path):
    """Who was deposed without knowing it has not seen what was popped since."""
    at = await Situation.make(tmp_path)
    body = json.dumps({"acks": [{"c": "G", "t": "T", "so": 7, "q": 0, "pt": 1, "b": "AQ=="}]})
    code = RequestCode.BATCH_ACK_MESSAGE
    answers = await at.ask(code, ProposalStatus.LOST_LEADERSHIP, ({}, body.encode()))
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
    await at.close()


# Neighbours ---------------------------------------------------------------------------------------


async def test_who_fits_no_entry_is_refused_alone(tmp_path):
    """A batch that is too large is taken apart; order and places stay."""
    rig = Rig(tmp_path)
    rig.log.entry_size_max = 2_000
    ended: list[tuple[str, ProposalStatus | None]] = []

    def submit(name: str, size: int) -> None:
        command = OffsetCommand("g" * size, name, 0, 1)
        rig.context.proposer.submit(
            Proposal(commands=[command], on_done=lambda status: ended.append((name, status)))
        )

    send = rig.make(SendProcessor)
    neighbours = [FakeConnection() for _ in range(3)]
    for number, connection in enumerate(neighbours):
        submit(f"small{number}", 700)
        rig.give(send.handle, 310, send_fields(key=f"k{number}"), b"x", connection)
    submit("culprit", 3_000)
    submit("last", 700)
    await turns(20)
    assert [name for name, _ in ended] == ["small0", "small1", "small2", "culprit", "last"]
    for name, status in ended:
        known = ProposalStatus.TRUNCATED if name == "culprit" else ProposalStatus.COMMITTED
        assert status is known, name
    places = [connection.sent[0].ext_fields["queueOffset"] for connection in neighbours]
    assert places == ["0", "1", "2"]
    assert rig.state.next_offset("T", 0) == 3
    await rig.ask(send.handle, 310, send_fields(key="later"), b"x")
    rig.queues.close()


async def test_a_log_without_room_takes_no_places_back_that_were_taken(tmp_path):
    """It may refuse before it asks for the payload: then the offsets given last are those of the
    entry before, which stands in the log."""
    rig = Rig(tmp_path)
    send = rig.make(SendProcessor)
    for number in range(3):
        await rig.ask(send.handle, 310, send_fields(key=f"k{number}"), b"x")
    propose = rig.log.propose

    def full(_: object) -> asyncio.Future[Any]:
        raise LogFullError

    rig.log.propose = full  # type: ignore[method-assign]
    for number in range(2):
        refused = await rig.ask(send.handle, 310, send_fields(key=f"full{number}"), b"x")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.log.propose = propose  # type: ignore[method-assign]
    answer = await rig.ask(send.handle, 310, send_fields(key="again"), b"x")
    assert answer.ext_fields["queueOffset"] == "3"
    rig.queues.close()


async def test_commands_count_among_what_waits(tmp_path):
    rig = Rig(tmp_path)
    rig.log.auto_commit = False
    proposer = rig.context.proposer
    for number in range(3):
        command = OffsetCommand("g" * 100_000, "T", number, 1)
        proposer.submit(Proposal(commands=[command], on_done=lambda _: None))
    assert proposer._pending_size > 300_000
    await turns(20)
    assert len(rig.log.open) == 2, "batches are bounded by the bytes of commands as well"
    assert proposer._pending_size == 0
    rig.queues.close()


# Queues -------------------------------------------------------------------------------------------


async def make_wide(at: Situation) -> None:
    """A topic of many queues, with messages in each."""
    rig = at.rig
    topic = {"topic": "Wide", "readQueueNums": "200", "writeQueueNums": "200", "perm": "6"}
    await rig.ask(at.handlers[17], 17, topic)
    send = rig.make(SendProcessor)
    for queue_id in range(200):
        items = [(b"x", b"", 0)] * 50
        fields = send_fields("Wide", queue_id, key=f"q{queue_id}")
        answer = await rig.ask(send.handle, 320, fields, encode_batch_body(items))
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.code.name)
async def test_a_look_at_a_wide_topic_is_bounded(tmp_path, row):
    """Whatever is asked of it, at once or one thing a thousand times."""
    if row.code in OF_MEMBERS or row.code in PROPOSING:
        return
    at = await Situation.make(tmp_path)
    await make_wide(at)
    now = {"I": "-1", "L": "0", "B": "true", "S": "G"}
    fields = {field.name: now[field.type] for field in row.header_fields()}
    fields |= {name: "Wide" for name in fields if "topic" in name.lower()}
    fields |= {name: "Wide;T;" * 9_000 for name in fields if "list" in name.lower()}
    size = sum(map(len, fields.values())) + 100

    def give() -> None:
        handler = at.handlers[row.code]
        at.rig.give(handler, row.code, fields, b"", FakeConnection())

    check(await Cost(at.rig).of(give), size, (row.code.name, fields))
    await at.close()


async def test_a_pop_of_all_queues_looks_at_some(tmp_path):
    """Whose filter lets nothing pass goes on in turns of its own."""
    at = await Situation.make(tmp_path)
    await make_wide(at)
    rig = at.rig
    pop = rig.make(PopProcessor)
    fields, _ = PROPOSING[RequestCode.POP_MESSAGE](at)
    fields |= {"topic": "Wide", "queueId": "-1", "expType": "SQL92", "exp": "a = 1"}
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(pop.handle, RequestCode.POP_MESSAGE, fields, b"", connection)
    for _ in range(100):
        await turns(20)
        if not rig.log.open:
            break
        ((entry, _),) = rig.log.open
        commands = decode_payload(entry.payload).commands
        assert len(commands) <= 64
        rig.log.commit()
    assert connection.sent[0].code == ResponseCode.POLLING_TIMEOUT
    moved = [at for key, at in rig.state.consumer_offsets.items() if key[1] == "Wide"]
    assert moved == [50] * 200
    await at.close()
