"""How tests wait, how they count work, and which lane they are in."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from campaigns.rig.waiting import await_until, turns, until
from tests.lanes import OTHERS, guarded, is_unit
from tests.work import counted

TESTS = Path(__file__).resolve().parent


async def test_turns_run_what_is_ready_and_what_that_makes_ready() -> None:
    ran: list[int] = []
    loop = asyncio.get_running_loop()

    def step(number: int) -> None:
        ran.append(number)
        loop.call_soon(step, number + 1)

    loop.call_soon(step, 0)
    await turns(3)
    assert ran == [0, 1, 2]


async def test_until_takes_conditions_of_either_kind_and_fails_by_name() -> None:
    rounds = iter(range(1_000))
    await until(lambda: next(rounds) > 110)

    async def holds() -> bool:
        return next(rounds) > 120

    await until(holds)
    with pytest.raises(AssertionError, match=r"not within 0 s: the moon"):
        await until(lambda: False, "the moon", seconds=0)
    with pytest.raises(AssertionError, match=r"not within 0 s: the sun"):
        await_until(lambda: False, "the sun", 0)


def test_work_is_counted_by_lines_below() -> None:
    def walk(count: int) -> None:
        for _ in range(count):
            pass

    with counted() as few:
        walk(10)
    with counted() as many:
        walk(1_000)
    assert 10 < few.lines < 50
    assert 1_000 < many.lines < 3_000


def is_there(name: str) -> bool:
    module, _, test = name.partition("::")
    if not test:
        return (TESTS / module).is_dir() or (TESTS / f"{module}.py").is_file()
    return re.search(rf"^(async def|def|class) {test}\b|^{test} =", text(module), re.M) is not None


def text(module: str) -> str:
    return (TESTS / f"{module}.py").read_text(encoding="utf-8")


def test_every_name_of_another_lane_is_there() -> None:
    assert [name for name in OTHERS if not is_there(name)] == []
    assert is_unit(Path(__file__))
    assert not is_unit(TESTS / "integration" / "test_members.py")
    assert is_unit(TESTS / "broker" / "test_dedupe.py", "test_something")
    assert not is_unit(
        TESTS / "broker" / "test_dedupe.py", "test_no_key_is_called_new_again_whoever_is_ahead"
    )


def test_the_guard_sees_sockets() -> None:
    with socket.socket() as listening, socket.socket() as other:
        with guarded() as seen:
            listening.bind(("127.0.0.1", 0))
        with guarded() as again, pytest.raises(OSError, match="refused"):
            other.connect(listening.getsockname())
    assert (seen, again) == (["socket.bind"], ["socket.connect"])


def test_the_guard_leaves_threads_of_before_alone() -> None:
    def listen() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))

    with ThreadPoolExecutor(max_workers=1) as earlier:
        earlier.submit(threading.get_ident).result()
        with guarded() as seen:
            earlier.submit(listen).result()
    with ThreadPoolExecutor(max_workers=1) as later, guarded() as again:
        later.submit(listen).result()
    assert (seen, again) == ([], ["socket.bind"])
