"""Whoever waits for a queue in order gets what is in it once nobody holds it any more.

Members of a group pop in order, acknowledge, postpone or hasten what they have, or are gone; some
name a queue, some take any. Whatever the history: while one of them waits, a pop that came now
would not find a message in the queues that it waits for, but for the time between two ticks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from campaigns.rig.waiting import turns
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import MessageRecord
from tests.broker.pop.pop_rig import POP, PopRig, messages
from tests.broker.rig import START_MS, FakeConnection

QUEUES = 2
TICK_MS = 100
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME


@dataclass
class Waiter:
    """A member that asked once, and waits for its answer."""

    queue_id: int
    is_query: bool = False
    connection: FakeConnection = field(default_factory=FakeConnection)

    @property
    def waits(self) -> bool:
        return not self.connection.sent and not self.connection.closed


class Group:
    """The members of group G, all of which pop topic T in order."""

    def __init__(self, rig: PopRig, rng: random.Random) -> None:
        self.rig, self.rng = rig, rng
        self.waiters: list[Waiter] = []
        self.given: list[tuple[MessageRecord, str]] = []
        self.sent = 0

    def ask(self, queue_id: int, *, invisible_ms: int, is_query: bool = False) -> Waiter:
        waiter = Waiter(queue_id, is_query)
        fields = self.rig.fields(
            order="true",
            queueId=str(queue_id),
            invisibleTime=str(invisible_ms),
            maxMsgNums=str(self.rng.choice((1, 2))),
            pollTime="60000",
        )
        handlers = self.rig.processors
        handler = handlers.pop_peek.notification if is_query else handlers.pop.handle
        code = RequestCode.NOTIFICATION if is_query else POP
        self.rig.give(handler, code, fields, b"", waiter.connection)
        self.waiters.append(waiter)
        return waiter

    # Steps -------------------------------------------------------------------------------------

    async def send(self) -> None:
        self.sent += 1
        await self.rig.send(b"m%d" % self.sent, queue=self.rng.randrange(QUEUES))

    async def pop(self) -> None:
        wait = self.rng.choice((300, 2_000, 20_000))
        self.ask(self.rng.randrange(-1, QUEUES), invisible_ms=wait)

    async def query(self) -> None:
        self.ask(self.rng.randrange(-1, QUEUES), invisible_ms=1, is_query=True)

    async def acknowledge(self) -> None:
        if self.given:
            record, handle = self.given.pop(self.rng.randrange(len(self.given)))
            assert await self.rig.ack(record, handle) == ResponseCode.SUCCESS

    async def change(self) -> None:
        if self.given:
            record, handle = self.rng.choice(self.given)
            await self.rig.change(record, handle, self.rng.choice((0, 150, 1_000, 10_000)))

    async def lose(self) -> None:
        """A member that waits is gone: perhaps while its pop is under way."""
        waiting = [waiter for waiter in self.waiters if waiter.waits]
        if waiting:
            self.rng.choice(waiting).connection.closed = True

    async def lose_at_work(self) -> None:
        self.given.clear()

    async def wait(self) -> None:
        for _ in range(self.rng.choice((1, 5, 25))):
            await self.tick()
            await self.look()

    async def under_way_together(self) -> None:
        """Several steps whose entries are committed together, those of a member that dies too."""
        self.rig.log.auto_commit = False
        await self.pop()
        for record, handle in self.given[:1]:
            fields = self.rig.ack_fields(record, handle, "T") | {"invisibleTime": "200"}
            change = self.rig.processors.pop_ack.change
            self.rig.give(change, CHANGE, fields, b"", FakeConnection())
        await turns(3)
        await self.pop()
        if self.rng.random() < 0.5:
            await self.lose()
        await turns(3)
        self.rig.log.auto_commit = True
        self.rig.log.commit()

    # What is so --------------------------------------------------------------------------------

    async def tick(self) -> None:
        self.rig.now_ms += TICK_MS
        self.rig.context.pop_polling.expire(self.rig.passed_ms)
        await self.settle()

    async def settle(self) -> None:
        await turns(8)
        for waiter in [waiter for waiter in self.waiters if waiter.connection.sent]:
            (answer,) = waiter.connection.sent
            if not waiter.is_query and not waiter.connection.closed:
                self.given += messages(answer)
            self.waiters.remove(waiter)

    async def look(self) -> None:
        for waiter in self.waiters:
            if waiter.waits:
                fields = self.rig.fields(order="true", queueId=str(waiter.queue_id))
                notification = self.rig.processors.pop_peek.notification
                found = await self.rig.ask(notification, RequestCode.NOTIFICATION, fields)
                assert found.ext_fields["hasMsg"] == "false", f"{waiter} sleeps"


@pytest.mark.parametrize("seed", range(40))
async def test_nobody_waits_for_a_queue_that_is_free(tmp_path, seed):
    rig, rng = PopRig(tmp_path / "store"), random.Random(seed)
    group = Group(rig, rng)
    steps = [group.send, group.pop, group.pop, group.query, group.acknowledge, group.change]
    steps += [group.lose, group.lose_at_work, group.wait, group.under_way_together]
    try:
        for _ in range(80):
            await rng.choice(steps)()
            await group.settle()
            await group.tick()
            await group.tick()  # an outcome that was awaited is looked at again after half of one
            await group.look()
        assert rig.now_ms > START_MS
    finally:
        await rig.tasks.stop()
        rig.queues.close()
