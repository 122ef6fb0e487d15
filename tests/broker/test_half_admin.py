"""What operators ask of halves: pages of them, one of them, and its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.entry.topics import TRANS_CHECK_MAX_TOPIC
from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.transaction.check_back import CheckBack
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection, Rig
from tests.broker.transactions import end, half

COMMIT, ROLLBACK = "8", "12"
HOST = "7F00000100002A9F"


class Operator:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._handlers = dispatch_of(rig.make(Processors, rig.tasks))

    async def ask(self, code: RequestCode, **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        return await self.rig.ask(self._handlers[code], code, texts)

    async def page(self, **fields: object) -> dict[str, Any]:
        answer = await self.ask(RequestCode.LEDGERMQ_LIST_HALVES, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        page: dict[str, Any] = json.loads(answer.body)
        return page

    async def show(self, message_id: str) -> dict[str, Any]:
        answer = await self.ask(RequestCode.LEDGERMQ_SHOW_HALF, msgId=message_id)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        shown: dict[str, Any] = json.loads(answer.body)
        return shown

    async def discard(self, message_id: str) -> RemotingCommand:
        return await self.ask(RequestCode.LEDGERMQ_DISCARD_HALF, msgId=message_id)


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def id_of(fields: dict[str, str]) -> str:
    return f"{HOST}{int(fields['commitLogOffset']):016X}"


async def test_a_million_would_come_page_by_page(rig: Rig) -> None:
    operator = Operator(rig)
    halves = [await half(rig, key=f"K{number}", KEYS=f"order-{number}") for number in range(10)]
    await end(rig, halves[4], COMMIT)
    rig.now_ms += 5_000
    seen: list[dict[str, Any]] = []
    offset, pages = 0, 0
    while True:
        page = await operator.page(offset=offset, countMax=4)
        assert len(page["halves"]) <= 4
        assert page["undecided"] == 9
        seen += page["halves"]
        offset, pages = page["nextOffset"], pages + 1
        if page["isEnd"]:
            break
    assert pages == 3
    assert [each["offset"] for each in seen] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert [each["msgId"] for each in seen] == [
        id_of(halves[at]) for at in (0, 1, 2, 3, *range(5, 10))
    ]
    first = seen[0]
    assert (first["topic"], first["queueId"], first["producerGroup"]) == ("T", 2, "PG")
    assert (first["keys"], first["uniqKey"], first["checks"]) == ("order-0", "K0", 0)
    assert first["ageMs"] == 5_000


async def test_a_page_may_be_empty_and_not_the_last(rig: Rig, monkeypatch) -> None:
    monkeypatch.setattr("broker.transaction.half_admin._READ_MAX", 4)
    operator = Operator(rig)
    for number in range(6):
        await half(rig, key=f"K{number}", topic="T")
    await half(rig, key="wanted", topic="U")
    first = await operator.page(topic="U", countMax=4)
    assert (first["halves"], first["nextOffset"], first["isEnd"]) == ([], 4, False)
    second = await operator.page(topic="U", countMax=4, offset=4)
    assert [each["uniqKey"] for each in second["halves"]] == ["wanted"]
    assert second["isEnd"]
    assert (await operator.page(producerGroup="nobody", offset=4, countMax=4))["halves"] == []


@pytest.mark.parametrize(
    "fields", [{"state": "lost"}, {"offset": -1}, {"countMax": 0}, {"countMax": 257}]
)
async def test_a_page_that_can_not_be_is_refused(rig: Rig, fields: dict[str, object]) -> None:
    answer = await Operator(rig).ask(RequestCode.LEDGERMQ_LIST_HALVES, **fields)
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_discarded_half_is_listed_resumed_and_decided(rig: Rig) -> None:
    operator = Operator(rig)
    fields = await half(rig)
    first = await operator.discard(id_of(fields))
    assert first.code == ResponseCode.SUCCESS, first.remark
    assert len(rig.state.halves) == 0
    assert rig.state.next_offset(TRANS_CHECK_MAX_TOPIC, 0) == 1
    late = await end(rig, fields, COMMIT)
    assert (late.code, late.remark) == (604, "transaction already discarded")
    assert (await operator.show(id_of(fields)))["state"] == "discarded"
    again = await operator.discard(id_of(fields))
    assert (again.code, again.remark) == (0, "transaction was discarded already")
    assert rig.state.next_offset(TRANS_CHECK_MAX_TOPIC, 0) == 1

    (given_up,) = (await operator.page(state="discarded"))["halves"]
    assert given_up["msgId"] == first.ext_fields["msgId"]
    assert (given_up["topic"], given_up["resumed"]) == ("T", False)
    resumed = await operator.ask(
        RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=first.ext_fields["msgId"]
    )
    assert resumed.code == ResponseCode.SUCCESS, resumed.remark
    assert (await operator.show(first.ext_fields["msgId"]))["resumed"] is True
    of_the_copy = await operator.discard(first.ext_fields["msgId"])
    assert of_the_copy.code == ResponseCode.ILLEGAL_OPERATION
    (again_undecided,) = (await operator.page())["halves"]
    place = {
        "tranStateTableOffset": str(again_undecided["offset"]),
        "commitLogOffset": str(int(again_undecided["msgId"][16:], 16)),
    }
    committed = await end(rig, fields, COMMIT, **place)
    assert committed.code == ResponseCode.SUCCESS, committed.remark
    assert rig.state.next_offset("T", 2) == 1


@pytest.mark.parametrize(("decision", "past"), [(COMMIT, "committed"), (ROLLBACK, "rolled back")])
async def test_a_decided_half_is_not_discarded(rig: Rig, decision: str, past: str) -> None:
    operator = Operator(rig)
    fields = await half(rig)
    await end(rig, fields, decision)
    answer = await operator.discard(id_of(fields))
    assert (answer.code, answer.remark) == (604, f"transaction already {past}")
    assert rig.state.next_offset(TRANS_CHECK_MAX_TOPIC, 0) == 0
    assert (await operator.show(id_of(fields)))["state"] == past


async def test_what_is_no_half_is_refused(rig: Rig) -> None:
    operator = Operator(rig)
    fields = await half(rig)
    await end(rig, fields, COMMIT)
    queue = rig.queues.find("T", 2)
    assert queue is not None
    position = int.from_bytes(queue.read(0, 1)[:8], "big")
    refusals = {
        f"{HOST}{position:016X}": ResponseCode.INVALID_PARAMETER,
        f"{HOST}{1 << 40:016X}": ResponseCode.NO_MESSAGE,
        "nonsense": ResponseCode.INVALID_PARAMETER,
    }
    for message_id, refusal in refusals.items():
        for code in (RequestCode.LEDGERMQ_SHOW_HALF, RequestCode.LEDGERMQ_DISCARD_HALF):
            answer = await operator.ask(code, msgId=message_id)
            assert answer.code == refusal, answer.remark


async def test_a_discard_waits_for_the_decision_in_flight(rig: Rig) -> None:
    """The first decision wins, whoever made it, and the other is refused only once it is known."""
    operator = Operator(rig)
    fields = await half(rig)
    rig.log.auto_commit = False
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    ends, discards = FakeConnection(), FakeConnection()
    decided = fields | {"commitOrRollback": COMMIT}
    rig.give(handlers[RequestCode.END_TRANSACTION], 37, decided, b"", ends)
    code = RequestCode.LEDGERMQ_DISCARD_HALF
    rig.give(operator._handlers[code], code, {"msgId": id_of(fields)}, b"", discards)
    await turns(5)
    assert (ends.sent, discards.sent) == ([], [])
    rig.log.auto_commit = True
    rig.log.commit()
    await turns(20)
    assert [each.code for each in ends.sent] == [ResponseCode.SUCCESS]
    assert [each.code for each in discards.sent] == [ResponseCode.ILLEGAL_OPERATION]


async def test_a_discard_that_was_lost_with_its_leader_discards_nothing(rig: Rig) -> None:
    operator = Operator(rig)
    fields = await half(rig)
    rig.log.auto_commit = False
    code, connection = RequestCode.LEDGERMQ_DISCARD_HALF, FakeConnection()
    rig.give(operator._handlers[code], code, {"msgId": id_of(fields)}, b"", connection)
    await turns(5)
    rig.log.depose(ProposalStatus.TRUNCATED)
    await turns(5)
    assert [each.code for each in connection.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    rig.log.lead()
    rig.log.auto_commit = True
    assert (await end(rig, fields, COMMIT)).code == ResponseCode.SUCCESS


async def test_only_a_proven_leader_says_what_there_is(rig: Rig) -> None:
    operator = Operator(rig)
    fields = await half(rig)
    rig.log.leader = False  # deposed, and does not know it yet
    for code in (RequestCode.LEDGERMQ_LIST_HALVES, RequestCode.LEDGERMQ_SHOW_HALF):
        answer = await operator.ask(code, msgId=id_of(fields))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_what_the_check_back_gave_up_is_listed(rig: Rig) -> None:
    operator = Operator(rig)
    await half(rig, key="old")
    rig.now_ms += rig.config.transaction_retention_ms + 1
    rig.make(CheckBack).round()
    await turns(20)
    (given_up,) = (await operator.page(state="discarded", topic="T", producerGroup="PG"))["halves"]
    assert given_up["uniqKey"] == "old"
    assert (await operator.page())["halves"] == []
