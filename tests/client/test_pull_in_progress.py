"""A pull that is given up: what it was for goes on, and a reset that answers it late is heard."""

from __future__ import annotations

import asyncio

import pytest

from campaigns.rig.waiting import turns
from client.consume.pull_in_progress import PullInProgress
from client.errors import UnansweredError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand

FIELDS = {"suggestWhichBrokerId": "0", "nextBeginOffset": "8", "minOffset": "0", "maxOffset": "9"}


class Pulls:
    def __init__(self) -> None:
        self.late: list[tuple[int, int]] = []
        self.pulling = PullInProgress(lambda offset, to: self.late.append((offset, to)))
        self.answers: list[asyncio.Future[RemotingCommand]] = []

    async def request(self) -> RemotingCommand:
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    async def begin(self, offset: int) -> asyncio.Task[RemotingCommand]:
        task = asyncio.ensure_future(self.pulling.wait_for(offset, self.request()))
        await turns(3)
        return task

    async def given_up(self, offset: int) -> None:
        task = await self.begin(offset)
        self.pulling.give_up()
        with pytest.raises(TimeoutError):
            await task


def answer(
    code: int = ResponseCode.PULL_OFFSET_MOVED, remark: str = "OFFSET_RESET"
) -> RemotingCommand:
    return RemotingCommand(code=code, remark=remark, ext_fields=dict(FIELDS))


async def test_an_answer_in_time_is_the_pulls_own() -> None:
    pulls = Pulls()
    task = await pulls.begin(8)
    expected = answer()
    pulls.answers[0].set_result(expected)
    assert await task is expected
    pulls.pulling.give_up()  # nothing is in progress
    assert pulls.late == []


async def test_an_error_in_time_is_raised() -> None:
    pulls = Pulls()
    task = await pulls.begin(8)
    pulls.answers[0].set_exception(UnansweredError("lost"))
    with pytest.raises(UnansweredError):
        await task


async def test_a_reset_that_answers_a_pull_given_up_is_heard() -> None:
    pulls = Pulls()
    await pulls.given_up(5)
    task = await pulls.begin(6)
    pulls.answers[0].set_result(answer())
    await turns(3)
    assert pulls.late == [(5, 8)]
    pulls.answers[1].set_result(answer(ResponseCode.PULL_NOT_FOUND))
    await task


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
        (ResponseCode.PULL_NOT_FOUND, "OFFSET_RESET"),
    ],
)
async def test_other_late_answers_move_nobody(code: int, remark: str) -> None:
    pulls = Pulls()
    await pulls.given_up(5)
    pulls.answers[0].set_result(answer(code, remark))
    await turns(3)
    assert pulls.late == []


async def test_late_errors_and_answers_without_fields_are_left() -> None:
    pulls = Pulls()
    for _ in range(2):
        await pulls.given_up(5)
    pulls.answers[0].set_exception(UnansweredError("lost"))
    code = ResponseCode.PULL_OFFSET_MOVED
    pulls.answers[1].set_result(RemotingCommand(code=code, remark="OFFSET_RESET"))
    await turns(3)
    assert pulls.late == []


async def test_so_many_may_be_late_and_none_after_a_stop() -> None:
    pulls = Pulls()
    for _ in range(7):
        await pulls.given_up(5)
    assert [one.cancelled() for one in pulls.answers] == [True] * 3 + [False] * 4
    pulls.pulling.stop()
    await turns(3)
    assert all(one.cancelled() for one in pulls.answers)
    assert pulls.late == []


async def test_a_cancelled_wait_cancels_its_request() -> None:
    pulls = Pulls()
    task = await pulls.begin(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await turns(3)
    assert pulls.answers[0].cancelled()
