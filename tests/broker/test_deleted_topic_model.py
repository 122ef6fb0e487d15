"""What was sent to a topic that is deleted never appears in the next topic of its name.

Whatever it waited for: a decision, a level, a time of its own, an acknowledgement, another try. In
any order with sends, deletions, deliveries, pops and commits of single entries of the log; and what
was sent to the topic that stands now is not lost with the one before.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.delay.delivery import DelayDelivery
from broker.entry.payload import UNIT, DeleteTopicCommand, decode_payload
from broker.entry.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from broker.pop.revive import PopRevive
from broker.process.processors import Processors
from broker.transaction.check_back import CheckBack
from campaigns.rig.waiting import turns
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.records.message import decode_record, decode_records
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

WAITING = {HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC}
RETRIES = "%RETRY%G"
POP_RETRIES = pop_retry_topic("T", "PopG")


class World:
    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng, self.rig = rng, Rig(directory)
        context = self.rig.context
        self.processors = self.rig.make(Processors, self.rig.tasks)
        self.rounds = [
            self.rig.make(DelayDelivery).round,
            self.processors.timers.round,
            self.rig.make(PopRevive).round,
            self.rig.make(CheckBack).round,
        ]
        self.number = 0
        self.seen = 0  # entries
        self.sent_at: dict[bytes, int] = {}
        self.deleted_until = 0
        self.deletions: list[int] = []
        self.halves: list[tuple[bytes, FakeConnection, str]] = []  # with the kind of its delay
        self.ends: list[tuple[bytes, str, FakeConnection]] = []
        self.asked: dict[bytes, FakeConnection] = {}
        context.clients.producer_seen("PG", "c", FakeConnection(), self.rig.now_ms)  # type: ignore[arg-type]

    # Steps -------------------------------------------------------------------------------------

    def send(self) -> None:
        self.number += 1
        value = b"v%d" % self.number
        delay = self.rng.choice(({}, {}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "700"}))
        half = {"TRAN_MSG": "true", "PGROUP": "PG"} if self.rng.random() < 0.4 else {}
        fields = send_fields(queue=0, key=value.decode(), **delay, **half)
        connection = FakeConnection()
        self.rig.give(self.processors.send.handle, 310, fields, value, connection)
        if half:
            self.halves.append((value, connection, "".join(delay)))
        else:
            self.asked[value] = connection

    def end(self, decision: str | None = None) -> None:
        known = [half for half in self.halves if half[1].sent and half[1].sent[0].code == 0]
        if not known:
            return
        value, connection, _ = self.rng.choice(known)
        told = connection.sent[0].ext_fields
        decision = decision or self.rng.choice(("8", "8", "12"))
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": told["queueOffset"],
            "commitLogOffset": str(int(told["msgId"][16:], 16)),
            "commitOrRollback": decision,
        }
        answer = FakeConnection()
        self.rig.give(self.processors.end_transaction.handle, 37, fields, b"", answer)
        self.ends.append((value, decision, answer))

    def pop(self) -> None:
        fields = {
            "consumerGroup": "PopG", "topic": "T", "queueId": "-1", "maxMsgNums": "3",
            "invisibleTime": "400", "pollTime": "0", "bornTime": "0", "initMode": "0",
        }  # fmt: skip
        code = RequestCode.POP_MESSAGE
        self.rig.give(self.processors.pop.handle, code, fields, b"", FakeConnection())

    def send_back(self) -> None:
        units = list(self.units("T"))
        if units:
            position, _ = self.rng.choice(units)
            fields = {"offset": str(position), "group": "G", "delayLevel": "1"}
            self.rig.give(self.processors.send_back.handle, 36, fields, b"", FakeConnection())

    def delete(self) -> None:
        fields, code = {"topic": "T"}, RequestCode.DELETE_TOPIC_IN_BROKER
        self.rig.give(self.processors.admin.delete_topic, code, fields, b"", FakeConnection())

    def round(self) -> None:
        self.rng.choice(self.rounds)()

    def wait(self) -> None:
        self.rig.now_ms += self.rng.choice((50, 300, 1_500))

    def commit(self, count: int = 1) -> None:
        log = self.rig.log
        rest = log.open[count:]
        del log.open[count:]
        log.commit()
        log.open[:] = rest
        self.look_at_log()

    # What is so --------------------------------------------------------------------------------

    def look_at_log(self) -> None:
        entries = self.rig.log.entries
        for entry in entries[self.seen :]:
            payload = decode_payload(entry.payload)
            for run in payload.runs:
                if run.topic == "T" or run.topic in WAITING:
                    for position, _, _ in UNIT.iter_unpack(run.units):
                        value = decode_record(self.rig.context.read_record(position)).body
                        self.sent_at.setdefault(value, position)
            if any(isinstance(command, DeleteTopicCommand) for command in payload.commands):
                self.deleted_until = entry.position + len(entry.payload)
                self.deletions.append(self.deleted_until)
        self.seen = len(entries)

    def units(self, topic: str) -> list[tuple[int, bytes]]:
        """(position, body) of all that the topic's queues show, or will, once there is one."""
        found: list[tuple[int, bytes]] = []
        for name, _, queue in self.rig.queues.items():
            if name == topic:
                count = queue.next_offset - queue.min_offset
                for position, _, _ in UNIT.iter_unpack(queue.read(queue.min_offset, count)):
                    record = decode_record(self.rig.context.read_record(position))
                    found.append((position, record.body))
        return found

    async def retries(self) -> list[bytes]:
        """What the group that pulls gets of its retries."""
        fields = pull_fields(RETRIES, maxMsgNums="1000")
        code = RequestCode.PULL_MESSAGE
        answer = await self.rig.ask(self.processors.pull.handle, code, fields)
        return [record.body for record in decode_records(answer.body)]

    async def check(self) -> None:
        shown = [body for _, body in self.units("T") + self.units(POP_RETRIES)]
        for value in shown + await self.retries():
            assert self.sent_at[value] >= self.deleted_until, f"{value!r} is of a deleted topic"
        for value, decision, answer in self.ends:
            if decision == "8" and answer.sent and answer.sent[0].code == ResponseCode.SUCCESS:
                assert self.is_committed(value), f"{value!r}: success, and nobody can read it"

    def is_committed(self, value: bytes) -> bool:
        """Whether its message stands in the log before any deletion of its topic since."""
        until = next((end for end in self.deletions if end > self.sent_at[value]), None)
        for entry in self.rig.log.entries:
            for run in decode_payload(entry.payload).runs:
                if run.topic in {"T", SCHEDULE_TOPIC, TIMER_TOPIC}:
                    for position, _, _ in UNIT.iter_unpack(run.units):
                        record = decode_record(self.rig.context.read_record(position))
                        if record.body == value and (until is None or position < until):
                            return True
        return False

    async def settle(self) -> None:
        await turns(10)


@pytest.mark.parametrize("seed", range(20))
async def test_the_next_topic_has_nothing_of_the_one_before(tmp_path, seed):
    world = World(tmp_path / "n0", random.Random(seed))
    rig, rng = world.rig, world.rng
    rig.log.auto_commit = False
    for number in range(250):
        steps = [world.send] * 5 + [world.end] * 3 + [world.pop] * 2 + [world.send_back] * 2
        steps += [world.round] * 8 + [world.wait] * 3 + [world.commit] * 6
        steps += [world.delete] if rng.random() < 0.5 else []
        (world.delete if number % 70 == 60 else rng.choice(steps))()
        if rng.random() < 0.6:
            await world.settle()
        if rng.random() < 0.3:
            await world.check()
    for _ in range(60):  # until nothing is on its way
        await world.settle()
        world.commit(100)
        rig.now_ms += 1_100
        for step in world.rounds:
            step()
    await world.settle()
    world.commit(100)
    await world.settle()
    await world.check()
    shown = {body for _, body in world.units("T")}
    for value, connection in world.asked.items():
        if connection.sent and connection.sent[0].code == ResponseCode.SUCCESS:
            alive = world.sent_at[value] >= world.deleted_until
            assert alive == (value in shown), f"{value!r} is lost"
    assert world.deletions
    again = rig.replay(tmp_path / "again")
    assert again.deletions == rig.state.deletions
    assert again.capture().parts.keys() == rig.state.capture().parts.keys()
    for name, part in again.parts().items():
        assert part == rig.state.parts()[name], name
    await rig.tasks.stop()
    rig.queues.close()
