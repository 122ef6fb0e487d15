"""The state machine over snapshots: restarts, installs, and logs that lost their beginning."""

from __future__ import annotations

import pytest

from broker.entry.payload import UNIT
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.queues.consume_queue import DamagedQueueError
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.state_machine import BrokerStateMachine
from broker.send.send import SendProcessor
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import Rig, pull_fields, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
AT = 12  # entries that the snapshot contains


@pytest.fixture
async def rig(tmp_path):
    """Thirty messages in three queues, one entry each; `rig.snapshot` after AT of them."""
    rig = Rig(tmp_path / "store")
    send = rig.make(SendProcessor)
    for number in range(30):
        if number == AT:
            rig.snapshot = list(rig.machine.capture().encode())
        fields = send_fields(key=f"K{number}", queue=number % 3)
        await rig.ask(send.handle, SEND, fields, b"body")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def shown(queues: ConsumeQueues) -> dict[tuple[str, int], tuple[int, bytes]]:
    return {
        (topic, queue_id): (queue.min_offset, queue.read(queue.min_offset, 100))
        for topic, queue_id, queue in queues.items()
    }


def bytes_of(machine: BrokerStateMachine) -> bytes:
    return b"".join(machine.capture().encode())


def test_a_restart_replays_only_what_is_behind_the_snapshot(rig, tmp_path):
    rig.machine.sync_derived()  # as a snapshot does first
    machine, queues = rig.another_machine(tmp_path / "store")
    machine.prepare_restore(AT, rig.snapshot)()
    machine.trim(0)
    assert not machine.needs_indexing, "the files are there"
    machine.apply(rig.log.entries[AT:])
    assert bytes_of(machine) == bytes_of(rig.machine)
    assert shown(queues) == shown(rig.queues)
    queues.close()


def test_a_restart_without_the_files_builds_them_from_the_log(rig, tmp_path):
    machine, queues = rig.another_machine(tmp_path / "empty")
    machine.prepare_restore(AT, rig.snapshot)()
    machine.trim(0)
    assert machine.needs_indexing
    machine.index_only(rig.log.entries[:5])
    machine.index_only(rig.log.entries[:AT])
    machine.apply(rig.log.entries[AT:])
    assert not machine.needs_indexing
    assert bytes_of(machine) == bytes_of(rig.machine)
    assert shown(queues) == shown(rig.queues)
    queues.close()


@pytest.mark.parametrize("first", [0, 1, 5, AT])
@pytest.mark.parametrize("applied", [0, 3])
def test_an_install_takes_the_log_from_where_it_begins(rig, tmp_path, first, applied):
    """`applied`: the node had entries of its own before it fell behind."""
    machine, queues = rig.another_machine(tmp_path / "late")
    machine.apply(rig.log.entries[:applied])
    machine.prepare_restore(AT, rig.snapshot)()
    begin = rig.log.entries[first].position - 44
    machine.trim(begin)
    machine.index_only(rig.log.entries[first:AT])
    machine.apply(rig.log.entries[AT:])
    assert bytes_of(machine) == bytes_of(rig.machine)
    rig.machine.trim(begin)
    assert shown(queues) == shown(rig.queues)
    queues.close()


def test_a_state_that_is_read_changes_nothing_before_it_is_put_in_place(rig):
    """It is read on a thread while entries are applied."""
    rig.machine.sync_derived()
    before, queues_before = bytes_of(rig.machine), shown(rig.queues)
    restore = rig.machine.prepare_restore(AT, rig.snapshot)
    assert bytes_of(rig.machine) == before
    assert shown(rig.queues) == queues_before
    restore()
    assert bytes_of(rig.machine) == b"".join(rig.snapshot)
    assert rig.context.state is rig.machine.state, "who held the state sees the new one"
    rig.machine.apply(rig.log.entries[AT:])
    assert bytes_of(rig.machine) == before
    assert shown(rig.queues) == queues_before


def test_a_damaged_snapshot_is_told(rig, tmp_path):
    machine, queues = rig.another_machine(tmp_path / "store")
    before = bytes_of(machine)
    with pytest.raises(ValueError, match="cut short"):
        machine.prepare_restore(AT, [*rig.snapshot[:-1], rig.snapshot[-1][:-9]])
    assert bytes_of(machine) == before
    queues.close()


@pytest.mark.parametrize(
    "unit", [UNIT.pack(0, 100, 0), UNIT.pack(1 << 40, 100, 0), UNIT.pack(500, 8, 0)]
)
async def test_a_damaged_unit_is_not_followed_and_built_again(rig, tmp_path, unit):
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(2 * UNIT.size)
        file.write(unit)
    pull = rig.make(PullProcessor, rig.tasks)
    with pytest.raises(DamagedQueueError, match="unit of offset 2 names no such message"):
        await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    machine, queues = rig.another_machine(tmp_path / "store")
    machine.prepare_restore(AT, rig.snapshot)()
    assert machine.needs_indexing
    machine.index_only(rig.log.entries[:AT])
    machine.apply(rig.log.entries[AT:])
    assert UNIT.unpack(queues.get("T", 0).read(2, 1))[0] == rig.state.messages.find("K6")
    queues.close()


async def test_a_pull_of_what_is_being_removed_is_asked_again(rig):
    """The log has dropped it, the queue is to hear of it in a moment."""
    rig.log.begin_position = rig.log.entries[6].position - 44
    pull = rig.make(PullProcessor, rig.tasks)
    answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.remark == "MESSAGE_WAS_REMOVING"
    assert answer.ext_fields["nextBeginOffset"] == "0"
    earliest = await rig.ask(
        rig.make(QueryProcessor, rig.tasks).earliest_store_time,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        {"topic": "T", "queueId": "0"},
    )
    assert earliest.ext_fields["timestamp"] == "0"
    rig.machine.trim(rig.log.begin_position)
    answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == "2"
