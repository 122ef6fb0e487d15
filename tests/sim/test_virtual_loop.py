"""The virtual event loop and TCP: time, order, death, pauses, cuts."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from broker.request.request import Request
from broker.request.tasks import TaskOwner
from chaos.sim.groups.machine import Machine, Site, calm_site
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.tcp import USER_TIMEOUT_US
from chaos.sim.machine.violation import Violation
from chaos.sim.machine.virtual_clock import VirtualClock
from chaos.sim.machine.virtual_host import current
from chaos.sim.machine.virtual_stdlib import substituted
from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.errors import ConnectError, ConnectionLostError, RemotingError, RequestTimeoutError
from remoting.protocol.command import RemotingCommand
from tests.broker.rig import FakeConnection

_SECOND = 1_000_000


@pytest.fixture
def site() -> Iterator[Site]:
    with substituted():
        yield calm_site("test", traced=True)


def _run(site: Site, seconds: float) -> None:
    site.scheduler.run_until(site.scheduler.now_us + int(seconds * _SECOND))
    if site.failures:
        raise site.failures[0]


def _machine(
    site: Site, name: str, number: int, program: Callable[[], Coroutine[Any, Any, None]]
) -> Machine:
    machine = Machine(site, name, f"10.9.0.{number}", program)
    machine.start()
    return machine


def test_time_does_not_stand_still() -> None:
    scheduler = Scheduler()

    def again() -> None:
        scheduler.at(scheduler.now_us, again)

    scheduler.at(7, again)
    with pytest.raises(Violation, match="stands still at 7 us"):
        scheduler.run_until(8)


def test_a_timer_is_never_early() -> None:
    """By no bit of a float: whoever waits for a time would wait for it again, and for ever."""
    scheduler = Scheduler()
    was_early = 0
    for seed in range(100_000):
        rng = random.Random(seed)
        clock = VirtualClock(scheduler, rng, rate_spread=0, wall_spread_ms=0, lateness_us_max=0)
        scheduler.now_us = rng.randrange(1_000_000_000)
        when = clock.monotonic()
        for _ in range(rng.randrange(1, 6)):
            when += rng.choice([0.001, 0.25, 1.0, 2.0, 30.0])
        scheduler.now_us = clock.global_us(when) + 1
        was_early += clock.monotonic() < when
        scheduler.now_us = clock.due_us(when)
        assert clock.monotonic() >= when
    assert was_early, "the times that were drawn are such as matter"


async def _serve() -> None:
    """Answers each request with its body."""

    def on_request(connection: Connection, command: RemotingCommand) -> None:
        connection.send(command.response(0, None, {}, command.body))

    server = RemotingServer("10.9.0.1", 1, on_request)
    await server.start()
    await asyncio.get_running_loop().create_future()


class _Asker:
    """Asks the server again and again, and notes how each request ended."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    async def run(self) -> None:
        client = RemotingClient()
        while True:
            try:
                answer = await client.request(
                    "10.9.0.1:1", RemotingCommand(code=1, body=b"hello"), 500
                )
                self.ends["ok" if answer.body == b"hello" else "wrong"] += 1
            except RemotingError as error:
                self.ends[type(error).__name__] += 1
            await asyncio.sleep(0.1)


def test_a_sleep_takes_virtual_time_only(site: Site) -> None:
    slept: list[float] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.sleep(3600)
        slept.append(loop.time() - begun)

    _machine(site, "a", 1, program)
    _run(site, 3599)
    assert not slept
    _run(site, 2)
    assert slept == [pytest.approx(3600, abs=0.001)]


def test_timers_of_one_time_keep_their_order(site: Site) -> None:
    order: list[int] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        for number in range(5):
            loop.call_at(when, order.append, number)
        loop.call_at(when, order.append, 5).cancel()
        await asyncio.sleep(2)

    _machine(site, "a", 1, program)
    _run(site, 3)
    assert order == [0, 1, 2, 3, 4]


def test_the_process_that_runs_is_the_current_one(site: Site) -> None:
    names: list[str] = []

    async def program() -> None:
        await asyncio.sleep(0.01)
        names.append(current().name)

    for number, name in enumerate("ab", start=1):
        _machine(site, name, number, program)
    _run(site, 1)
    assert names == ["a.1", "b.1"]
    with pytest.raises(AssertionError, match="outside"):
        current()


def test_what_escapes_into_the_loop_is_a_failure(site: Site) -> None:
    async def program() -> None:
        asyncio.get_running_loop().call_soon(lambda: {}["missing"])
        await asyncio.sleep(1)

    _machine(site, "a", 1, program)
    with pytest.raises(Violation, match=r"escaped: a\.1"):
        _run(site, 1)


def test_a_dead_process_does_nothing_any_more(site: Site) -> None:
    ticks: list[int] = []

    async def program() -> None:
        while True:
            await asyncio.sleep(0.1)
            ticks.append(1)

    machine = _machine(site, "a", 1, program)
    _run(site, 1.05)
    machine.die(power=False)
    count = len(ticks)
    _run(site, 1)
    assert len(ticks) == count == 10


def test_a_fuse_kills_between_two_callbacks(site: Site) -> None:
    ticks: list[int] = []

    async def program() -> None:
        while True:
            await asyncio.sleep(0)
            ticks.append(1)
            if len(ticks) % 10 == 0:
                await asyncio.sleep(0.1)

    machine = _machine(site, "a", 1, program)
    _run(site, 0.05)
    assert machine.process is not None
    machine.process.loop.fuse = 4
    _run(site, 1)
    assert not machine.alive
    assert 10 < len(ticks) < 20


def test_a_paused_process_goes_on_where_it_was(site: Site) -> None:
    ticks: list[float] = []

    async def program() -> None:
        while True:
            await asyncio.sleep(0.1)
            ticks.append(asyncio.get_running_loop().time())

    machine = _machine(site, "a", 1, program)
    _run(site, 0.55)
    machine.pause()
    _run(site, 5)
    assert len(ticks) == 5
    machine.resume()
    _run(site, 0.35)
    assert len(ticks) == 5 + 1 + 3
    assert ticks[5] - ticks[4] > 5


def test_requests_are_answered_through_the_simulated_network(site: Site) -> None:
    asker = _Asker()
    _machine(site, "server", 1, _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 5)
    assert asker.ends.keys() == {"ok"}
    assert asker.ends["ok"] > 40


def test_nobody_listening_refuses(site: Site) -> None:
    asker = _Asker()
    Machine(site, "server", "10.9.0.1", _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 1)
    assert asker.ends.keys() == {ConnectError.__name__}


def test_a_dead_process_resets_its_connections(site: Site) -> None:
    asker = _Asker()
    server = _machine(site, "server", 1, _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 1)
    server.die(power=False)
    _run(site, 1)
    assert asker.ends.keys() == {"ok", ConnectError.__name__}
    server.start()
    before = asker.ends["ok"]
    _run(site, 1)
    assert asker.ends["ok"] > before


def test_a_machine_without_power_says_nothing(site: Site) -> None:
    asker = _Asker()
    server = _machine(site, "server", 1, _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 1)
    server.die(power=True)
    _run(site, 2)
    assert asker.ends.keys() == {"ok", RequestTimeoutError.__name__}
    _run(site, USER_TIMEOUT_US / _SECOND)
    server.start()
    before = asker.ends["ok"]
    _run(site, 2)
    assert asker.ends["ok"] > before


def test_a_cut_swallows_one_direction_and_brings_it_late(site: Site) -> None:
    asker = _Asker()
    _machine(site, "server", 1, _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 1)
    site.tcp.cut("server", "client")
    _run(site, 2)
    assert asker.ends.keys() == {"ok", RequestTimeoutError.__name__}
    site.tcp.heal("server", "client")
    timeouts = asker.ends[RequestTimeoutError.__name__]
    _run(site, 1)
    assert asker.ends[RequestTimeoutError.__name__] <= timeouts + 1
    assert asker.ends[ConnectionLostError.__name__] == 0


def test_a_narrow_link_lets_bytes_through_one_after_the_other(site: Site) -> None:
    """And what waits when it is widened comes at once, in order."""
    arrived: list[int] = []

    async def send() -> None:
        client = RemotingClient()
        for number in range(20):
            command = RemotingCommand(code=1, body=number.to_bytes(2, "big") * 500)
            await client.oneway("10.9.0.1:1", command, 1_000)
            await asyncio.sleep(0.01)  # else all are one write
        await asyncio.Event().wait()

    async def note() -> None:
        def on_request(_: Connection, command: RemotingCommand) -> None:
            arrived.append(command.body[1])

        server = RemotingServer("10.9.0.1", 1, on_request)
        await server.start()
        await asyncio.Event().wait()

    _machine(site, "server", 1, note)
    site.tcp.slow("client", "server", 0, byte_us=1_000)  # more than a second for each
    _machine(site, "client", 2, send)
    _run(site, 4)
    assert 1 <= len(arrived) <= 4, arrived
    site.tcp.slow("client", "server", 0)
    _run(site, 0.2)
    assert arrived == list(range(20))


def test_a_reset_breaks_connections_on_both_sides(site: Site) -> None:
    asker = _Asker()
    _machine(site, "server", 1, _serve)
    _machine(site, "client", 2, asker.run)
    _run(site, 1)
    connections = site.coverage.counts["tcp_connections"]
    site.tcp.reset("client", "server")
    _run(site, 1)
    assert site.coverage.counts["tcp_connections"] == connections + 1


def test_a_process_that_dies_leaves_no_work_of_its_requests_unawaited(site: Site) -> None:
    async def work() -> None:
        raise AssertionError("nothing runs in a dead process")

    async def program() -> None:
        tasks = TaskOwner()
        tasks.answer(Request(FakeConnection(), RemotingCommand(code=1)), work)
        current().kill()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _machine(site, "dies", 1, program)
        _run(site, 1)
        site.bury()
        gc.collect()
    assert [text for one in told if "never awaited" in (text := str(one.message))] == []
