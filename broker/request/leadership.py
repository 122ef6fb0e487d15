"""What this node may do as its group's leader, and what it holds only while it is.

Place in the data path: whoever proposes calls `require_leader` first, and hands its proposal to
`proposer`. "Does this node lead" has one answer, `ready`, which `broker.process.server` keeps by
the log's notices; `wait_for_read_point` has the other voters confirm it.

Invariants: `ready` implies that the log has applied what earlier terms committed, and that the
group's time is known. What waits in `proposer` is refused as `ready` ends, and leases count anew as
it begins; `room` alone is about this node, leading or not.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.leader.busy import BusyHoldings
from broker.leader.proposer import Proposer
from broker.leader.rebalance_lock import RebalanceLocks
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.request.room import Room
from raft.replicated_log import NotLeaderError, Phase, ProposalStatus
from remoting.protocol.codes import ResponseCode
from remoting.protocol.leader_hint import not_leader_remark

__all__ = ["Leadership"]


class Leadership:
    """Leadership of one node: whether it has it, and what is in flight while it has."""

    __slots__ = ("_replica", "locks", "pop_busy", "proposer", "ready", "room", "term")

    def __init__(self, replica: Replica, proposer: Proposer) -> None:
        self._replica = replica
        self.proposer = proposer
        self.locks = RebalanceLocks(lease_ms=replica.config.lock_lease_ms)
        self.pop_busy = BusyHoldings()
        self.ready = False  # this node leads and may propose, by the log's last notice
        self.term = 0
        self.room = Room()  # of the disk, by the last check

    def change(self, *, ready: bool, term: int) -> None:
        """Note the role that the log reports.

        Where a leadership has ended, refuse the proposals that waited; where one has begun, count
        the leases of queues from now.
        """
        if self.ready and not ready:
            self.proposer.lost_leadership()
        elif ready and not self.ready:
            self.locks.begin(self._replica.monotonic_ms())
        self.ready, self.term = ready, term

    def require_leader(self) -> None:
        """Raises RefusedError (14, definite) unless this node may propose now."""
        if not self.ready:
            raise self.not_leader()
        if not self.room.for_commands:
            raise self._disk_is_full()

    def require_room(self) -> None:
        """Raises RefusedError (14, definite) unless this node may store messages of clients now."""
        self.require_leader()
        if self.room.want is not None:
            raise self._disk_is_full()

    def _disk_is_full(self) -> RefusedError:
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"service not available now. It may be caused by the disk being full: {self.room.want}",
        )

    @property
    def is_orphan(self) -> bool:
        """Whether this node is a slave whose master is away: it answers reads by what it has."""
        replica = self._replica
        config = replica.config
        if not config.is_master_slave or config.node == config.master_node:
            return False
        status = replica.log.status()
        return status.leader_id is None and status.phase is Phase.SERVING

    async def wait_for_read_point(self) -> None:
        """Return once what was committed before the call is applied here.

        Raises RefusedError (14) where this node can't prove that it leads.
        """
        try:
            await self._replica.log.read_index()
        except NotLeaderError as error:
            raise self.not_leader() from error

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        """See `ReplicatedLog.confirm`: what is answered as done already is answered behind it."""
        self._replica.log.confirm(on_done)

    def not_leader(self) -> RefusedError:
        """Return the refusal (14, definite) that names the leader, where one is known."""
        leader = self._replica.log.status().leader_id
        address = None if leader is None else self._replica.broker_addresses.get(leader)
        return RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, not_leader_remark(address))
