"""Start position of a group without an offset in a queue.

Place in the data path: offset queries and pops of a new group. Source: RocketMQ
ConsumerManageProcessor.queryConsumerOffset, checkInMemByConsumeOffset.
"""

from __future__ import annotations

from broker.entry.payload import UNIT
from broker.queues.consume_queue import ConsumeQueue
from broker.request.replica import Replica

__all__ = ["is_young"]


def is_young(replica: Replica, topic: str, queue_id: int, queue: ConsumeQueue) -> bool:
    """Whether the queue has all of its messages, and the first of them is, by RocketMQ's estimate,
    still in memory. A group without an offset starts there whatever it requests: one that wants the
    last message would miss those that are sent while it starts. The queue of a topic that was
    deleted and created again begins at its floor."""
    if queue.min_offset > replica.state.floors.get(topic, queue_id):
        return False
    if queue.next_offset == queue.min_offset:
        return True
    units = queue.read(queue.min_offset, 1)
    position: int = UNIT.unpack(units)[0] if units else 0
    return replica.log.retention_bounds().end_position - position <= replica.config.in_memory_size
