"""Success is said of what is committed, and of nothing else (promises G1, G7).

Engines behind the seam may end a proposal as stored here, its replication unknown; Raft's as lost
or as kept out. Every request that proposes is given each of these ends.
"""

from __future__ import annotations

import random

import pytest

from broker.leader.proposer import Proposal, Proposer
from broker.process.request_table import SERVED
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.any_request import BODIES, fields_for, handlers
from tests.broker.proposing import BESIDE, PROPOSING, STORED_CODES, Situation, pull_after_reset
from tests.broker.rig import FakeConnection, pull_fields, send_fields

OUTCOMES = [None, *(status for status in ProposalStatus if status is not ProposalStatus.COMMITTED)]
SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
@pytest.mark.parametrize("code", PROPOSING, ids=lambda code: RequestCode(code).name)
async def test_nothing_but_a_committed_entry_is_success(tmp_path, code, outcome):
    at = await Situation.make(tmp_path)
    try:
        answers = await at.ask(code, outcome)
        assert len(answers) == 1
        told = answers[0]
        if outcome in STORED_CODES and code in SENDS:
            assert told.code == STORED_CODES[outcome], "its place is known, its replication is not"
        elif outcome is None or outcome is ProposalStatus.TRUNCATED:
            assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE, told.remark
        else:
            assert told.code == ResponseCode.SYSTEM_ERROR, told.remark
            assert (told.remark or "").startswith("outcome unknown"), told.remark
    finally:
        await at.close()


@pytest.mark.parametrize("code", PROPOSING, ids=lambda code: RequestCode(code).name)
async def test_a_committed_entry_is_success(tmp_path, code):
    at = await Situation.make(tmp_path)
    try:
        fields, body = PROPOSING[code](at)
        entries = len(at.rig.log.entries)
        if code == RequestCode.LEDGERMQ_CHANGE_MEMBER:
            return  # its entry is none that this log's machine can apply
        answer = await at.rig.ask(at.handlers[code], code, fields, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert len(at.rig.log.entries) > entries
    finally:
        await at.close()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
async def test_a_reset_that_may_not_be_cleared_gives_no_messages(tmp_path, outcome):
    """The next pull, of the next leader perhaps, would be sent back a second time."""
    at = await Situation.make(tmp_path)
    answers = await at.ask(RequestCode.PULL_MESSAGE, outcome, pull_after_reset())
    surely_not = outcome is None or outcome is ProposalStatus.TRUNCATED
    known = ResponseCode.SERVICE_NOT_AVAILABLE if surely_not else ResponseCode.SYSTEM_ERROR
    assert [answer.code for answer in answers] == [known]
    await at.close()


async def test_a_replica_leaves_a_group_with_a_reset_to_the_leader(tmp_path):
    at = await Situation.make(tmp_path)
    at.rig.log.depose()
    for offset in (0, 1):
        fields = pull_fields(offset=offset) | {"consumerGroup": "ResetG"}
        answer = await at.rig.ask(at.handlers[11], RequestCode.PULL_MESSAGE, fields)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    answer = await at.rig.ask(at.handlers[11], RequestCode.PULL_MESSAGE, pull_fields(offset=0))
    assert answer.code == ResponseCode.SUCCESS, "another group has none"
    await at.close()


async def test_who_waits_for_a_key_in_flight_is_told_as_much(tmp_path):
    at = await Situation.make(tmp_path)
    rig, first, second = at.rig, FakeConnection(), FakeConnection()
    rig.log.auto_commit = False
    for connection in (first, second):
        rig.give(at.handlers[310], 310, send_fields(key="new"), b"x", connection)
    await turns(20)
    status = ProposalStatus.FLUSH_DISK_TIMEOUT
    rig.log.confirmations = []
    rig.log.commit(status=status)
    await turns(20)
    assert [answer.code for answer in first.sent] == [ResponseCode.FLUSH_DISK_TIMEOUT]
    (confirm,) = rig.log.confirmations
    assert second.sent == []
    confirm(status)
    assert [answer.code for answer in second.sent] == [ResponseCode.FLUSH_DISK_TIMEOUT]
    await at.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_proposes_is_known(tmp_path, monkeypatch, seed):
    """Whatever requests with any fields propose is listed, so that the ends above reach it."""
    now: list[int] = [0]
    seen: set[int] = set()
    submit = Proposer.submit

    def noted(self: Proposer, proposal: Proposal) -> None:
        seen.add(now[0])
        submit(self, proposal)

    at = await Situation.make(tmp_path)
    rng, rig = random.Random(seed), at.rig
    known = handlers(rig)
    monkeypatch.setattr(Proposer, "submit", noted)
    for _ in range(3_000):
        now[0], handler = rng.choice(known)
        body = rng.choice(BODIES)
        rig.give(handler, now[0], fields_for(now[0], rng), body, FakeConnection())
        await turns(4)
    assert seen <= PROPOSING.keys() | BESIDE.keys()
    assert len(seen) > 5
    await at.close()


def test_every_request_says_whether_it_proposes():
    """A new one has to be put into one of the two lists, or here."""
    silent = {
        *(12, 14, 21, 25, 26, 28, 29, 30, 31, 32, 33, 35, 38, 43, 45, 46, 201, 202, 203, 204, 208),
        *(223, 300, 303, 305, 306, 307, 309, 315, 316, 317, 321, 328, 329, 343, 345, 351, 352),
        *(400, 907, 908, 2003, 3004, 3005, 3009, 3010, 60001, 60002, 60004, 60005, 60006),
        *(60007, 60008),
        *(200052, 200054, 200055, 200056),
    }
    served = {int(row.code) for row in SERVED}
    assert served == silent | set(map(int, PROPOSING)) | set(map(int, BESIDE))
    assert not silent & (PROPOSING.keys() | BESIDE.keys())
