"""An offset reset sends a consumer back once, whenever it pulls and whoever leads.

Messages that are read more often than resets ask for come from being sent back once too often, so
the model counts that: one consumer, administrators who reset, and a log whose entries are committed
one by one, get lost with a leader, or are committed by the next one.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.entry.payload import ClearResetCommand, ResetCommand, decode_payload
from broker.process.processors import Processors
from campaigns.rig.waiting import turns
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_records
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

COUNT = 40  # messages in the queue


class World:
    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng = rng
        self.rig = Rig(directory)
        self.processors = self.rig.make(Processors, self.rig.tasks)
        self.connection = FakeConnection()
        self.asked = False
        self.position = 0
        self.sent_back = 0
        self.may_send_back = 0  # resets that are pending, or were replaced while they were
        self.resets = self.clearings = 0
        self.leaders = 1

    async def fill(self) -> None:
        for number in range(COUNT):
            fields = send_fields(key=f"k{number}")
            await self.rig.ask(self.processors.send.handle, 310, fields, b"%d" % number)
        self.rig.log.auto_commit = False

    # Steps -------------------------------------------------------------------------------------

    def pull(self) -> None:
        """The next one, or the same again where an answer got lost."""
        if not self.asked:
            hold = (
                {"sysFlag": "6", "suspendTimeoutMillis": "15000"} if self.rng.random() < 0.5 else {}
            )
            fields = pull_fields(offset=self.position, **hold) | {"maxMsgNums": "4"}
            self.connection = FakeConnection()
            self.asked = True
            pull = self.processors.pull.handle
            self.rig.give(pull, RequestCode.PULL_MESSAGE, fields, b"", self.connection)

    def hear(self) -> None:
        if not self.asked or not self.connection.sent:
            return
        answer = self.connection.sent[0]
        self.asked = False
        if self.rng.random() < 0.1:
            return  # lost on its way
        if answer.code == ResponseCode.SUCCESS:
            offsets = [record.queue_offset for record in decode_records(answer.body)]
            assert offsets[0] == self.position
            self.position = offsets[-1] + 1
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            told = int(answer.ext_fields["nextBeginOffset"])
            # Who is there already drops what it holds, and reads nothing twice.
            self.sent_back += told != self.position
            self.may_send_back -= told != self.position
            self.position = told
        else:
            assert answer.code in {
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.SYSTEM_ERROR,
                ResponseCode.SERVICE_NOT_AVAILABLE,
            }, answer.remark

    def commit_offset(self) -> None:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        fields["commitOffset"] = str(self.position)
        update = self.processors.offsets.update
        self.rig.give(update, RequestCode.UPDATE_CONSUMER_OFFSET, fields, b"", FakeConnection())

    def reset(self) -> None:
        fields = {"topic": "T", "group": "G", "timestamp": "0", "queueId": "0"}
        fields["offset"] = str(self.rng.choice((0, 5, 5, 17, COUNT, self.position)))
        reset = self.processors.offset_reset.reset
        self.rig.give(
            reset, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, b"", FakeConnection()
        )

    def commit(self) -> None:
        """The next entry."""
        log = self.rig.log
        rest = log.open[1:]
        del log.open[1:]
        log.commit()
        log.open[:] = rest
        self.look_at(1)

    def look_at(self, count: int) -> None:
        """What the newest entries say of resets."""
        for entry in self.rig.log.entries[-count:] if count else ():
            for command in decode_payload(entry.payload).commands:
                if isinstance(command, ResetCommand):
                    self.resets += 1
                    self.may_send_back += 1
                elif isinstance(command, ClearResetCommand) and not self.rig.state.resets:
                    self.clearings += 1
                    self.may_send_back = 0

    def change_leader(self) -> None:
        """Some of what is open the next leader commits; who asked hears of neither."""
        log = self.rig.log
        kept = [entry for entry, _ in log.open[: self.rng.randrange(4)]]
        log.depose()
        for entry in kept:
            log.entries.append(entry)
            self.rig.machine.apply([entry])
            self.look_at(1)
        self.leaders += 1

    def lead(self) -> None:
        self.rig.log.lead()

    async def settle(self) -> None:
        await turns(8)


@pytest.mark.parametrize("seed", range(40))
async def test_a_reset_sends_back_once(tmp_path, seed):
    world = World(tmp_path, random.Random(seed))
    await world.fill()
    log, rng = world.rig.log, world.rng
    for _ in range(600):
        steps = [world.pull] * 4 + [world.hear] * 4 + [world.commit] * 3 + [world.commit_offset]
        if log.leader:
            steps += [world.reset] if rng.random() < 0.4 else []
            steps += [world.change_leader] if rng.random() < 0.2 else []
        else:
            steps += [world.lead] * 2
        rng.choice(steps)()
        if rng.random() < 0.7:
            await world.settle()
        assert world.may_send_back >= 0, f"sent back {world.sent_back} times"
    log.lead()
    for _ in range(40):  # until the consumer is through
        await world.settle()
        while log.open:
            world.commit()
            await world.settle()
        world.rig.context.long_polling.expire(world.rig.now_ms + 60_000)
        world.hear()
        assert world.may_send_back >= 0, f"sent back {world.sent_back} times"
        world.pull()
    assert not world.rig.state.resets, "each was followed"
    assert world.position == COUNT
    assert min(world.resets, world.clearings, world.sent_back, world.leaders) > 1
    await world.rig.tasks.stop()
    world.rig.queues.close()
