"""What waits for its time is delivered once, in time, whatever became of earlier tries to do so.

Tries are refused (too many proposals), fail (no room in the log), are cut off by a change of
leadership or overtaken by deletions of topics and by recalls. The model reads the log: which
message stands there until when, and what became of it. Whenever the group is calm, all that is due
has gone: into its topic, or nowhere where its topic was deleted or it was recalled.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.delay.delivery import DelayDelivery
from broker.entry.payload import (
    UNIT,
    DeleteTopicCommand,
    Payload,
    RecallTimerCommand,
    decode_payload,
)
from broker.entry.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from broker.process.processors import Processors
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode
from remoting.records.message import decode_record
from tests.broker.rig import FakeConnection, Rig, send_fields

TOPICS = ("A", "B")
DELAYS = ({"DELAY": "1"}, {"DELAY": "2"}, {"TIMER_DELAY_MS": "700"}, {"TIMER_DELAY_MS": "2500"})


@dataclass
class Waiting:
    topic: str
    due_ms: int
    position: int
    queue: tuple[str, int, int]  # where it waits
    is_recalled: bool = False
    delivered: int = 0


class World:
    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng, self.rig = rng, Rig(directory)
        context = self.rig.context
        self.rig.log.auto_commit = False
        self.processors = self.rig.make(Processors, self.rig.tasks)
        self.rounds = [self.rig.make(DelayDelivery).round, self.processors.timers.round]
        self.limits = context.proposer._limits
        self.waiting: dict[bytes, Waiting] = {}
        self.by_place: dict[tuple[str, int, int], bytes] = {}
        self.deleted_until: dict[str, int] = {}
        self.sent: list[FakeConnection] = []
        self.seen = 0  # entries

    # Steps -------------------------------------------------------------------------------------

    def send(self) -> None:
        number = len(self.sent)
        topic, delay = self.rng.choice(TOPICS), self.rng.choice(DELAYS)
        fields = send_fields(topic, key=f"K{number}", **delay)
        self.sent.append(FakeConnection())
        send = self.processors.send.handle
        self.rig.give(send, RequestCode.SEND_MESSAGE_V2, fields, b"v%d" % number, self.sent[-1])

    def recall(self) -> None:
        handles = [
            one.sent[0].ext_fields["recallHandle"]
            for one in self.sent[-12:]
            if one.sent and "recallHandle" in one.sent[0].ext_fields
        ]
        if handles:
            fields = {"topic": "A", "recallHandle": self.rng.choice(handles)}
            code = RequestCode.RECALL_MESSAGE
            self.rig.give(self.processors.recall.handle, code, fields, b"", FakeConnection())

    def delete(self) -> None:
        fields, code = {"topic": self.rng.choice(TOPICS)}, RequestCode.DELETE_TOPIC_IN_BROKER
        self.rig.give(self.processors.admin.delete_topic, code, fields, b"", FakeConnection())

    def round(self) -> None:
        for step in self.rounds:
            step()

    def wait(self) -> None:
        self.rig.now_ms += self.rng.choice((20, 300, 1_500))

    def commit(self, count_max: int | None = 1) -> None:
        self.rig.log.commit(count_max)
        self.look_at_log()

    def depose(self) -> None:
        statuses = (ProposalStatus.LOST_LEADERSHIP, ProposalStatus.TRUNCATED)
        self.rig.log.depose(self.rng.choice(statuses))

    def lead(self) -> None:
        if not self.rig.log.leader:
            self.rig.log.lead()

    def be_full(self) -> None:
        self.rig.log.refusals = self.rng.choice((1, 1, 4))

    def delete_in_vain(self) -> None:
        """A deletion that finds no room, and what is behind it does."""
        self.wait()
        self.delete()
        self.round()
        self.rig.log.refusals = 1

    def be_busy(self) -> None:
        proposer = self.rig.context.proposer
        is_busy = proposer._limits is not self.limits
        proposer._limits = self.limits if is_busy else replace(self.limits, pending_max=0)

    # What is so --------------------------------------------------------------------------------

    def look_at_log(self) -> None:
        entries = self.rig.log.entries
        for entry in entries[self.seen :]:
            payload = decode_payload(entry.payload)
            self.look_at_runs(payload)
            for command in payload.commands:
                if isinstance(command, DeleteTopicCommand):
                    self.deleted_until[command.name] = entry.position + len(entry.payload)
                elif isinstance(command, RecallTimerCommand):
                    value = self.by_place[TIMER_TOPIC, 0, command.queue_offset]
                    assert not self.waiting[value].delivered, "recalled after it was delivered"
                    self.waiting[value].is_recalled = True
        self.seen = len(entries)

    def look_at_runs(self, payload: Payload) -> None:
        for run in payload.runs:
            for at, (position, _, code) in enumerate(UNIT.iter_unpack(run.units)):
                record = decode_record(self.rig.context.read_record(position))
                place = (run.topic, run.queue_id, run.first_queue_offset + at)
                if run.topic in {SCHEDULE_TOPIC, TIMER_TOPIC}:
                    topic = record.property_map()["REAL_TOPIC"]
                    self.waiting[record.body] = Waiting(topic, code, position, place)
                    self.by_place[place] = record.body
                elif run.topic in TOPICS:
                    one = self.waiting[record.body]
                    one.delivered += 1
                    assert one.delivered == 1, f"{record.body!r} is delivered again"
                    assert not one.is_recalled, f"{record.body!r} was recalled"
                    assert payload.store_timestamp_ms >= one.due_ms, "too early"
                    assert not self.is_taken(one), f"{record.body!r} is of a deleted topic"

    def is_taken(self, one: Waiting) -> bool:
        return one.position < self.deleted_until.get(one.topic, 0)

    async def settle(self) -> None:
        await turns(10)

    async def drain(self) -> None:
        """Until nothing is in flight."""
        await self.settle()
        while self.rig.log.open:
            self.commit(None)
            await self.settle()

    async def be_calm(self) -> None:
        """No trouble, a leader, and time for a few rounds."""
        self.rig.log.refusals = 0
        self.rig.context.proposer._limits = self.limits
        self.lead()
        await self.drain()
        for passed_ms in (1_100, 0, 0):  # what could not be read is tried again after a second
            self.rig.now_ms += passed_ms
            self.round()
            await self.drain()
        self.check()

    def check(self) -> None:
        state, now_ms = self.rig.state, self.rig.context.clock_ms()
        for value, one in self.waiting.items():
            is_gone = one.delivered or one.is_recalled or self.is_taken(one)
            assert is_gone or one.due_ms > now_ms, f"{value!r} is due and waits"
        for queue_id in (0, 1):
            dues = [
                one.due_ms
                for one in self.waiting.values()
                if one.queue[:2] == (SCHEDULE_TOPIC, queue_id)
            ]
            progress = sum(due_ms <= now_ms for due_ms in dues)
            assert state.delay_offsets.get(queue_id, 0) == progress, f"level {queue_id + 1}"
        assert state.timers.due(now_ms, but=(), count_max=1) == []


@pytest.mark.parametrize("seed", range(30))
async def test_what_is_due_is_delivered_once_whatever_became_of_earlier_tries(tmp_path, seed):
    world = World(tmp_path, random.Random(seed))
    steps = [world.send] * 9 + [world.round] * 8 + [world.commit] * 5 + [world.wait] * 3
    steps += [world.recall, world.delete, world.delete, world.depose, world.lead, world.lead]
    steps += [world.be_full, world.be_busy, world.delete_in_vain]
    for number in range(300):
        step = world.rng.choice(steps)
        step()
        # Nobody leads again before it has heard what became of its entries.
        if step == world.depose or world.rng.random() < 0.6:
            await world.settle()
        if number % 25 == 24:
            await world.be_calm()
    world.rig.now_ms += 10_000
    await world.be_calm()
    assert any(one.delivered for one in world.waiting.values())
    await world.rig.tasks.stop()
    world.rig.queues.close()
