"""Compare what a replica has derived from its log with the committed log.

Place in the data path: at the end of a seed `cluster` reads each broker's ConsumeQueues and state,
once every node has applied everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from broker.entry.payload import UNIT
from broker.request.replica import Replica
from broker.state.state_image import StateImage
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.models.log_model import LogModel
from chaos.sim.groups.models.stored import Stored
from chaos.sim.machine.current_process import enter, leave
from chaos.sim.machine.violation import Violation
from namesrv.server import NameServer
from raft.messages import NodeId
from remoting.protocol.route import MASTER_ID

__all__ = ["check_alike", "check_queue", "check_replicas", "check_route", "check_state"]


def check_replicas(machines: Sequence[BrokerMachine], log: LogModel) -> None:
    """Check every replica's queues against the committed log, and compare their states.

    The queues name the records of the log (run format, S1). Raises Violation.
    """
    images: dict[NodeId, StateImage] = {}
    for machine in machines:
        broker, process = machine.broker, machine.process
        assert broker is not None
        assert process is not None
        before = enter(process)  # reading may open files
        try:
            check_state(machine.name, broker.replica, log)
            images[machine.name] = broker.replica.state.capture()
            for (topic, queue_id), stored in log.queues.items():
                check_queue(machine.name, broker.replica, topic, queue_id, stored)
        finally:
            leave(before)
    check_alike(images)


def check_queue(
    node: NodeId, replica: Replica, topic: str, queue_id: int, stored: Sequence[Stored]
) -> None:
    """Check that a unit names every record that the log still has (run format, S1).

    Raises Violation.
    """
    queue = replica.queues.find(topic, queue_id)
    if queue is None or queue.next_offset != len(stored):
        end = 0 if queue is None else queue.next_offset
        raise Violation("S1", f"{node}: {topic}/{queue_id} ends at {end}, not {len(stored)}")
    begin = replica.log.retention_bounds().begin_position
    floor = replica.state.floors.get(topic, queue_id)
    if queue.min_offset < floor:
        raise Violation("S1", f"{node}: {topic}/{queue_id} shows what is below its floor {floor}")
    if queue.min_offset > floor and stored[queue.min_offset - 1].position >= begin:
        raise Violation(
            "S1",
            f"{node}: {topic}/{queue_id} begins at {queue.min_offset}, and the log has the record "
            f"of {stored[queue.min_offset - 1].value}",
        )
    for offset in range(queue.min_offset, len(stored)):
        unit = queue.read(offset, 1)
        position = UNIT.unpack(unit)[0] if unit else None
        if position != stored[offset].position:
            raise Violation(
                "S1",
                f"{node}: unit {offset} of {topic}/{queue_id} names {position}, the record of "
                f"{stored[offset].value} stands at {stored[offset].position}",
            )


def check_route(server: NameServer, topic: str, leader: str) -> None:
    """Check that a name server routes clients to the `leader` address. Raises Violation."""
    route = server._table.route(topic)
    if route is None:
        if topic in server._table.topics():
            raise Violation("routes", f"{server.address} has no route for {topic}")
        return  # nobody ever sent anything
    named = [data.broker_addrs.get(MASTER_ID) for data in route.broker_datas]
    if named != [leader]:
        raise Violation("routes", f"{server.address} names {named} as leader, it is {leader}")


def check_state(node: NodeId, replica: Replica, log: LogModel) -> None:
    """Check offsets and transactions against the log (G3, G4, G5). Raises Violation."""
    state = replica.state
    for (topic, queue_id), queue in log.queues.items():
        if state.next_offset(topic, queue_id) != len(queue):
            raise Violation(
                "G3",
                f"{node}: {topic}/{queue_id} goes on at {state.next_offset(topic, queue_id)}, the "
                f"log has {len(queue)}",
            )
    if dict(state.consumer_offsets) != log.offsets:
        raise Violation("G5", f"{node}: consumer offsets are not those of the log")
    if {tuple(row) for row in state.resets.capture()} != log.resets.rows():
        raise Violation("resets", f"{node}: other resets are pending than those of the log")
    if dict(state.floors.all()) != log.floors:
        raise Violation("G3", f"{node}: floors of deleted topics are not those of the log")
    shapes = {
        topic.name: (topic.read_queue_count, topic.write_queue_count, topic.perm)
        for topic in state.topics.values()
        if topic.name not in replica.own_topics
    }
    if shapes != log.shapes.current():
        raise Violation("shapes", f"{node}: other topics than those of the log")
    waiting = {at: timer.stored.position for at, timer in log.timers.waiting.items()}
    if {row[0]: row[2] for row in state.timers.capture()} != waiting:
        raise Violation("G5", f"{node}: other timer messages wait than those of the log")
    held = {tuple(row[1:]) for row in state.pop.capture() if row[0] == "held"}
    if held != set(log.pop.rows()):
        raise Violation("G5", f"{node}: other popped messages are held than those of the log")
    ordered = {
        ((row[1], row[2], row[3]), row[5], tuple(row[7]), tuple(row[8]))
        for row in state.pop.capture()
        if row[0] == "order"
    }
    if ordered != log.pop.order.rows():
        raise Violation("G5", f"{node}: other messages are popped in order than those of the log")
    if {tuple(row) for row in state.queue_owners.capture()} != log.locks.rows():
        raise Violation("locks", f"{node}: queues have other owners than in the log")
    if {row[0] for row in state.resumed.capture()} != log.resumed:
        raise Violation("G4", f"{node}: other halves were resumed than those of the log")
    if sorted(map(list, state.users.capture()), key=repr) != log.registry.user_rows():
        raise Violation("registry", f"{node}: other users than those of the log")
    if state.groups != log.registry.groups:
        raise Violation("registry", f"{node}: other groups than those of the log")
    if len(state.halves) != log.undecided():
        raise Violation(
            "G4", f"{node}: {len(state.halves)} halves are undecided, the log has {log.undecided()}"
        )


def check_alike(images: Mapping[NodeId, StateImage]) -> None:
    """Check that nodes that have applied the same entries have the same state.

    Dedupe windows and remembered decisions are included, whether they came from the entries or from
    a snapshot. Raises Violation.
    """
    (first, expected), *others = images.items()
    for node, image in others:
        for one in fields(StateImage):
            if one.name != "parts" and getattr(image, one.name) != getattr(expected, one.name):
                raise Violation("replicas", f"{node} has other {one.name} than {first}")
        for name, rows in expected.parts.items():
            if list(image.parts[name]) != list(rows):
                raise Violation("replicas", f"{node} has other {name} than {first}")
