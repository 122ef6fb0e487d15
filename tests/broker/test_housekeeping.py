"""What a broker does once a second: room on the disk, handing over, letting old messages go."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from broker.admin.consume_stats import ConsumeStatsProcessor
from broker.delay.delivery import DelayDelivery
from broker.entry.payload import UNIT
from broker.entry.topics import SCHEDULE_TOPIC
from broker.process.housekeeping import Housekeeper
from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.request.room import DiskUse, room_of
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns, until
from raft.messages import NodeId
from remoting.errors import RequestTimeoutError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records
from tests.broker.rig import START_MS, Rig, pull_fields, send_fields

GIB = 1 << 30
ROOMY = DiskUse(used=10 * GIB, free=90 * GIB)
FULL = DiskUse(used=100 * GIB, free=1 << 20)
SEND = RequestCode.SEND_MESSAGE_V2


class Peers:
    """The other replicas' answers to LEDGERMQ_STATUS, by address."""

    def __init__(self) -> None:
        self.statuses: dict[str, dict[str, object] | bytes] = {}

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert command.code == RequestCode.LEDGERMQ_STATUS
        status = self.statuses.get(address)
        if status is None:
            raise RequestTimeoutError(f"{address} is silent")
        body = status if isinstance(status, bytes) else json.dumps(status).encode()
        return RemotingCommand(code=0, body=body)


class House:
    def __init__(self, rig: Rig, **config: object) -> None:
        self.rig = rig
        self.use = ROOMY
        self.peers = Peers()
        rig.context.config = replace(rig.config, **config)
        self.keeper = rig.make(
            Housekeeper,
            rig.tasks,
            self.peers,  # type: ignore[arg-type]
            measure=lambda _: self.use,
        )

    async def round(self) -> None:
        """One look, one round, and everything that they spawned."""
        self.keeper.poll()
        self.keeper.round()
        await turns(20)

    async def send(self, key: str, **properties: str) -> RemotingCommand:
        fields = send_fields(key=key, **properties)
        return await self.rig.ask(self.rig.make(SendProcessor).handle, SEND, fields, b"body")


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (FULL, "less than 16777216 bytes are free"),
        (DiskUse(used=91 * GIB, free=9 * GIB), "91.0 % of it are used, more than 90 %"),
    ],
)
async def test_a_full_disk_refuses_sends_and_recovers_by_itself(rig, use, says):
    house = House(rig)
    house.use = use
    await house.round()
    refused = await house.send("K1")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert says in (refused.remark or "")
    assert rig.log.entries == []
    house.use = ROOMY
    await house.round()
    assert (await house.send("K1")).code == ResponseCode.SUCCESS


async def test_queues_that_were_built_again_get_their_checks_soon(rig, tmp_path):
    """Not with the next snapshot, which may be a day away."""
    house = House(rig)
    await house.send("K1")
    await house.send("K2")
    snapshot = list(rig.machine.capture().encode())
    file = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    file.unlink()
    rig.machine.prepare_restore(2, snapshot)()
    rig.machine.index_only(rig.log.entries)
    await house.send("K3")
    check = file.with_suffix(".crc")
    assert not check.exists()
    await house.round()
    await until(lambda: check.exists() and check.read_bytes())
    assert check.read_bytes()[:8].hex() == "4c4d515500000003"
    changed_ns = check.stat().st_mtime_ns
    await house.round()
    await rig.tasks.stop()
    assert check.stat().st_mtime_ns == changed_ns, "once is enough"


NEARLY_FULL = DiskUse(used=91 * GIB, free=9 * GIB)


def what_makes_room(half: RemotingCommand) -> dict[int, tuple[dict[str, str], bytes]]:
    """Requests of consumers, producers and operators that store no message of a client."""
    queue = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    locks = b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"T","queueId":0}]}'
    rollback = {
        "producerGroup": "PG",
        "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitLogOffset": str(int(half.ext_fields["msgId"][16:], 16)),
        "commitOrRollback": "12",
    }
    return {
        RequestCode.UPDATE_CONSUMER_OFFSET: (queue | {"commitOffset": "1"}, b""),
        RequestCode.LOCK_BATCH_MQ: ({}, locks),
        RequestCode.UNLOCK_BATCH_MQ: ({}, locks),
        RequestCode.END_TRANSACTION: (rollback, b""),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "G", "cleanOffset": "true"}, b""),
        RequestCode.DELETE_TOPIC_IN_BROKER: ({"topic": "T"}, b""),
    }


async def test_what_makes_room_is_not_refused_for_want_of_room(rig):
    house = House(rig, log_size_bytes_max=1)
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    await house.send("K0")
    half = await house.send("H1", TRAN_MSG="true", PGROUP="PG")
    sent = await house.send("D1", DELAY="1")
    house.use = NEARLY_FULL
    await house.round()
    back = {"offset": str(int(sent.ext_fields["msgId"][16:], 16)), "group": "G", "delayLevel": "3"}
    for code, fields in (
        (SEND, send_fields(key="K1")),
        (SEND, send_fields(key="H2", TRAN_MSG="true", PGROUP="PG")),
        (RequestCode.CONSUMER_SEND_MSG_BACK, back),
        (RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": sent.ext_fields["msgId"]}),
    ):
        refused = await rig.ask(handlers[code], code, fields, b"body")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
    rig.now_ms += 1_000
    rig.make(DelayDelivery).round()
    await turns(10)
    assert rig.queues.get("T", 0).next_offset == 2, "what was due is delivered"
    for code, (fields, body) in what_makes_room(half).items():
        answer = await rig.ask(handlers[code], code, fields, body)
        assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
    await house.round()
    assert rig.log.begin_position >= rig.log.entries[-1].position, "nothing holds the log back"


async def test_a_log_without_room_refuses_all(rig):
    house = House(rig)
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    await house.send("K0")
    half = await house.send("H1", TRAN_MSG="true", PGROUP="PG")
    rig.log.writable = False
    await house.round()
    for code, (fields, body) in {
        SEND: (send_fields(key="K1"), b""),
        **what_makes_room(half),
    }.items():
        refused = await rig.ask(handlers[code], code, fields, body)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
        assert "the log finds no room" in (refused.remark or "")


def test_half_of_what_is_reserved_is_for_what_waits():
    """The rest is for commands: else what is delivered would take the room of acknowledgements."""
    for free, for_own in ((8 << 20, True), ((8 << 20) - 1, False)):
        room = room_of(
            DiskUse(used=GIB, free=free),
            warning_level_ratio=100,
            free_size_min=16 << 20,
            log_writable=True,
        )
        assert (room.for_own, room.for_commands) == (for_own, True)
        assert room.want is not None


async def test_leadership_goes_to_the_furthest_replica_that_has_room(rig, monkeypatch):
    house = House(rig)
    names = ("n0", "n1", "n2", "n3", "n4")
    rig.context.broker_addresses = {name: f"127.0.0.1:{name[1]}" for name in names}
    status = rig.log.status()
    voters = tuple(NodeId(name) for name in names)
    monkeypatch.setattr(rig.log, "status", lambda: replace(status, voters=voters))
    moved: list[NodeId] = []

    async def transfer(target: NodeId) -> None:
        moved.append(target)

    monkeypatch.setattr(rig.log, "transfer_leadership", transfer)
    there = {"group": "broker-a", "disk_full": False, "applied_index": 7}
    house.peers.statuses = {
        "127.0.0.1:1": there,
        "127.0.0.1:2": there | {"applied_index": 9, "disk_full": True},
        "127.0.0.1:3": there | {"applied_index": 8},
        "127.0.0.1:4": b"nonsense",
    }
    await house.round()
    assert moved == [], "it has room itself"
    house.use = FULL
    await house.round()
    assert moved == ["n3"]
    await house.round()
    assert moved == ["n3"], "not again at once"
    rig.now_ms += 10_000
    house.peers.statuses = {"127.0.0.1:3": there | {"group": "broker-b"}}
    await house.round()
    assert moved == ["n3"], "nobody has room: it stays and refuses"


async def test_what_is_too_much_goes_and_readers_hear_of_it(rig):
    house = House(rig)
    for number in range(10):
        await house.send(f"K{number}")
    size = len(rig.log.data)
    house = House(rig, log_size_bytes_max=size // 2)
    await house.round()
    begin = rig.log.begin_position
    assert size // 3 < begin <= size // 2
    queue = rig.queues.get("T", 0)
    assert 3 <= queue.min_offset <= 5
    assert UNIT.unpack(queue.read(queue.min_offset, 1))[0] >= begin
    assert queue.read(queue.min_offset - 1, 1) == b""

    pull = rig.make(PullProcessor, rig.tasks)
    asked = pull_fields(offset=1)
    moved = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, asked)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.remark == "OFFSET_TOO_SMALL"
    assert moved.ext_fields["nextBeginOffset"] == str(queue.min_offset)
    assert moved.ext_fields["minOffset"] == str(queue.min_offset)
    asked = pull_fields(offset=queue.min_offset)
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, asked)
    assert [record.queue_offset for record in decode_records(found.body)] == list(
        range(queue.min_offset, 10)
    )
    offsets = rig.make(OffsetProcessor, rig.tasks)
    minimum = await rig.ask(
        offsets.minimum, RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"}
    )
    assert minimum.ext_fields["offset"] == str(queue.min_offset)


async def test_offsets_of_a_trimmed_queue(rig):
    """A group that never committed is told to look for itself; stats cope with what is gone."""
    house = House(rig)
    for number in range(4):
        await house.send(f"K{number}")
    offsets, queries = (
        rig.make(OffsetProcessor, rig.tasks),
        rig.make(QueryProcessor, rig.tasks),
    )
    progress = rig.make(ConsumeStatsProcessor, rig.tasks)
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    committed = await rig.ask(
        offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": "1"}
    )
    assert committed.code == ResponseCode.SUCCESS
    await rig.log.retain_from(len(rig.log.data))
    queue = rig.queues.get("T", 0)
    assert (queue.min_offset, queue.next_offset) == (4, 4)
    unknown = await rig.ask(
        offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, fields | {"consumerGroup": "New"}
    )
    assert unknown.code == ResponseCode.QUERY_NOT_FOUND
    for handler, code in (
        (progress.topic_stats, RequestCode.GET_TOPIC_STATS_INFO),
        (progress.consume_stats, RequestCode.GET_CONSUME_STATS),
        (queries.earliest_store_time, RequestCode.GET_EARLIEST_MSG_STORETIME),
        (queries.search_offset, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ):
        answer = await rig.ask(handler, code, fields | {"timestamp": "0"})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    pulled = await rig.ask(
        rig.make(PullProcessor, rig.tasks).handle,
        RequestCode.PULL_MESSAGE,
        pull_fields(offset=1),
    )
    assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
    assert pulled.ext_fields["nextBeginOffset"] == "4"


async def test_old_messages_go_by_their_store_time(rig):
    house = House(rig, delete_when=";".join(f"{hour:02d}" for hour in range(24)))
    await house.send("old")
    rig.now_ms += 71 * 3_600_000
    await house.send("younger")
    await house.round()
    assert rig.log.begin_position == 0
    rig.now_ms += 2 * 3_600_000
    await house.send("new")
    await house.round()
    assert rig.queues.get("T", 0).min_offset == 1
    assert rig.now_ms > START_MS + 72 * 3_600_000


async def test_halves_and_waiting_messages_hold_the_log(rig):
    house = House(rig, log_size_bytes_max=1)
    await house.send("K0")
    await house.send("H1", TRAN_MSG="true", PGROUP="PG")
    await house.send("D1", DELAY="1")
    await house.send("K1")
    await house.round()
    half = rig.state.halves.undecided()[0]
    assert rig.log.begin_position <= half.position
    assert rig.queues.get("T", 0).min_offset == 1, "what is before the half is gone"
    rig.state.halves.decide(half.queue_offset, "rollback")
    await house.round()
    waiting = UNIT.unpack(rig.queues.get(SCHEDULE_TOPIC, 0).read(0, 1))[0]
    assert half.position < rig.log.begin_position <= waiting


async def test_a_slow_follower_and_the_kept_snapshot_hold_the_log(rig):
    house = House(rig, log_size_bytes_max=1)
    for number in range(6):
        await house.send(f"K{number}")
    rig.log.follower_position = rig.log.entries[2].position
    rig.log.snapshot_position = rig.log.entries[4].position
    await house.round()
    assert rig.queues.get("T", 0).min_offset == 2
    house.use = DiskUse(used=88 * GIB, free=12 * GIB)
    await house.round()
    assert rig.queues.get("T", 0).min_offset == 4, "the disk forces it, the snapshot still holds"
