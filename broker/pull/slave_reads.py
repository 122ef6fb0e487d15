"""Which broker a pull's answer sends its consumer to, where a configured master has slaves.

Place in the data path: `broker.pull.pull` queries it for each answer. A consumer that is further
behind than what counts as in memory would make the master read its disk: it is sent to a slave
(`slave_read_enable`, on the engines `async` and `sync`), and back once it has caught up.

Invariants: changes nothing; without `slave_read_enable`, and on engines that elect, every answer
names the master; a slave whose master is reachable keeps slow consumers alone.

Source: RocketMQ PullMessageProcessor, DefaultMessageStore.getMessage (suggestPullingFromSlave).
"""

from __future__ import annotations

from broker.entry.payload import UNIT
from broker.queues.consume_queue import ConsumeQueue
from broker.request.replica import Replica
from remoting.protocol.route import MASTER_ID

__all__ = ["SlaveReads"]

_SLAVE_ID = 1  # whichBrokerWhenConsumeSlowly of a group that says nothing of it


class SlaveReads:
    """Steering of one node's pulls."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        config = replica.config
        self._is_master_slave = config.is_master_slave
        self.is_slave = config.is_master_slave and config.node != config.master_node

    @property
    def has_master(self) -> bool:
        """Whether this slave is connected to its master."""
        return self._replica.log.status().leader_id is not None

    def behind_size(self, queue: ConsumeQueue, next_offset: int) -> int:
        """Return how many bytes of log lie behind the message before `next_offset`; 0 where nobody
        would be sent to a slave for it."""
        if not (self._is_master_slave and self._replica.config.slave_read_enable):
            return 0
        units = queue.read(next_offset - 1, 1)
        if not units:  # retention has taken it
            return 0
        position: int = UNIT.unpack(units)[0]
        return self._replica.log.retention_bounds().end_position - position

    def suggested_id(self, group: str, behind_size: int) -> int:
        """Return the id of the broker to pull from next."""
        config = self._replica.config
        if not (self._is_master_slave and config.slave_read_enable):
            return MASTER_ID
        known = self._replica.state.groups.get(group, {})
        if behind_size > config.in_memory_size:
            return int(known.get("whichBrokerWhenConsumeSlowly", _SLAVE_ID))
        if self.is_slave and self.has_master:
            return MASTER_ID
        return int(known.get("brokerId", MASTER_ID))
