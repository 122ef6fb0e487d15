"""Periodic work of a broker: disk checks, retention, expiry of clients.

Place in the data path: beside it. Checks whether the disk has room (`broker.request.room`), and
transfers leadership to a replica that has, while this one has not; gathers the facts that
`broker.config.retention` decides on and has the log carry the decision out; has rebuilt
ConsumeQueues synced.

Invariants: one removal and one transfer is in flight at a time; leadership is never transferred to
a replica without room, and if none has room the leader stays, rejects messages, and accepts them
again without intervention once there is room.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker.admin.disk_use import disk_use
from broker.config.retention import Retention, RetentionFacts, RetentionPolicy, decide_retention
from broker.entry.levels import DELAY_LEVEL_MAX
from broker.entry.payload import UNIT
from broker.entry.topics import SCHEDULE_TOPIC
from broker.request.clients import Clients
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.room import DiskUse, room_of
from broker.request.tasks import TaskOwner
from raft.messages import NodeId
from raft.replicated_log import NotLeaderError, Phase
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["Housekeeper"]

_log = logging.getLogger(__name__)
_STATUS_TIMEOUT_MS = 1_000
_HAND_OVER_INTERVAL_MS = 10_000


class Housekeeper:
    """Periodic work of one broker. `poll` is called every 100 ms, so that less can be stored
    between two calls than the minimum of free bytes; `round` is called once a second."""

    def __init__(
        self,
        replica: Replica,
        leadership: Leadership,
        clients: Clients,
        tasks: TaskOwner,
        remoting: RemotingClient,
        *,
        measure: Callable[[Path], DiskUse] = disk_use,
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._clients = clients
        self._tasks = tasks
        self._remoting = remoting
        self._measure = measure
        self._retain_now = False
        self._use: DiskUse | None = None  # of the last check
        self._is_retaining = False
        self._is_handing_over = False
        self._handover_ms: int | None = None

    def poll(self) -> None:
        """Check whether the disk has room. Raises OSError of the disk under the store."""
        self._use = self._measure(self._replica.config.store)
        self._judge_room(self._use)

    def round(self) -> None:
        """Expire clients, apply retention, sync rebuilt queues. Raises OSError of derived files."""
        replica = self._replica
        self._clients.expire(replica.monotonic_ms())
        replica.queues.write_held()
        if replica.queues.wants_sync:
            replica.queues.wants_sync = False
            self._tasks.spawn(asyncio.to_thread(replica.queues.sync))
        # While queues are rebuilt it is not known which messages wait in those of the delay levels.
        if self._use is not None and not self._is_retaining and not replica.queues.is_filling:
            policy = replica.config.retention
            facts = self._facts(self._use, policy)
            if self._retain_now:
                policy = replace(policy, delete_hours=frozenset({facts.hour}))
                self._retain_now = False
            retention = decide_retention(policy, facts)
            if retention is not None:
                self._is_retaining = True
                self._tasks.spawn(self._retain(retention))

    def retain_now(self) -> None:
        """Delete expired messages at the next round, at any hour."""
        self._retain_now = True

    # Room --------------------------------------------------------------------------------------

    def _judge_room(self, use: DiskUse) -> None:
        replica, leadership, config = self._replica, self._leadership, self._replica.config
        status = replica.log.status()
        room = room_of(
            use,
            warning_level_ratio=config.disk_space_warning_level_ratio,
            free_size_min=config.disk_free_size_min,
            # Before it serves, a node takes no entries for other reasons than its disk.
            log_writable=status.writable or status.phase is not Phase.SERVING,
        )
        want = room.want
        if (want is None) != (leadership.room.want is None):
            _log.warning(
                "%s/%s: the store's disk is %s: sends are %s",
                config.group,
                config.node,
                "no longer full" if want is None else "full",
                "taken again" if want is None else f"refused, {want}",
            )
        leadership.room = room
        if want is None or not leadership.ready or self._is_handing_over:
            return
        now_ms = replica.monotonic_ms()
        last_ms = self._handover_ms
        if last_ms is None or now_ms - last_ms >= _HAND_OVER_INTERVAL_MS:
            self._handover_ms = now_ms
            self._is_handing_over = True
            self._tasks.spawn(self._hand_over())

    async def _hand_over(self) -> None:
        """Transfer leadership to the most advanced replica that has room."""
        try:
            target = await self._replica_with_room()
            if target is None:
                _log.warning("no other replica has room: this one goes on leading, and refuses")
                return
            _log.warning("leadership goes to %s, which has room", target)
            await self._replica.log.transfer_leadership(target)
        except (NotLeaderError, TimeoutError, ValueError) as error:
            _log.info("leadership was not handed over: %s", error)
        finally:
            self._is_handing_over = False

    async def _replica_with_room(self) -> NodeId | None:
        replica = self._replica
        furthest: tuple[int, NodeId] | None = None
        for voter in replica.log.status().voters:
            address = replica.broker_addresses.get(voter)
            if voter == replica.config.node or address is None:
                continue
            applied_index = await self._applied_index(address)
            if applied_index is not None and (furthest is None or applied_index > furthest[0]):
                furthest = applied_index, voter
        return None if furthest is None else furthest[1]

    async def _applied_index(self, address: str) -> int | None:
        """Return the applied index of a replica of this group that has room; None of any other, and
        if it does not answer."""
        command = RemotingCommand(code=RequestCode.LEDGERMQ_STATUS)
        try:
            answer = await self._remoting.request(address, command, _STATUS_TIMEOUT_MS)
            status = json.loads(answer.body)
            if status["group"] != self._replica.config.group or status["disk_full"]:
                return None
            return int(status["applied_index"])
        except (RemotingError, ValueError, KeyError, TypeError) as error:
            _log.info("%s does not tell whether it has room: %r", address, error)
            return None

    # Retention ---------------------------------------------------------------------------------

    def _facts(self, use: DiskUse, policy: RetentionPolicy) -> RetentionFacts:
        replica = self._replica
        state, now_ms = replica.state, replica.clock_ms()
        return RetentionFacts(
            hour=time.localtime(now_ms // 1000).tm_hour,
            disk_used_percent=use.used_percent,
            bounds=replica.log.retention_bounds(),
            expired_position=state.time_marks.position_before(now_ms - policy.reserved_ms),
            half_position=state.halves.begin_position,
            delay_position=self._delay_position(),
        )

    def _delay_position(self) -> int | None:
        """Return the position of the oldest message that waits for its delivery, or is held after a
        pop; None if there is none."""
        replica = self._replica
        positions: list[int] = []
        for queue_id in range(DELAY_LEVEL_MAX):
            queue = replica.queues.find(SCHEDULE_TOPIC, queue_id)
            first = replica.state.delay_offsets.get(queue_id, 0)
            unit = b"" if queue is None else queue.read(first, 1)
            if unit:
                positions.append(UNIT.unpack(unit)[0])
        if replica.state.timers.begin_position is not None:
            positions.append(replica.state.timers.begin_position)
        for (_, topic, queue_id), offset in replica.state.pop.oldest(replica.clock_ms()):
            queue = replica.queues.find(topic, queue_id)
            unit = b"" if queue is None else queue.read(offset, 1)
            if unit:
                positions.append(UNIT.unpack(unit)[0])
        return min(positions, default=None)

    async def _retain(self, retention: Retention) -> None:
        """Have the log apply a decision. An error here has stopped the node, and fails the task."""
        replica = self._replica
        try:
            before = replica.log.retention_bounds().begin_position
            begin = await replica.log.retain_from(retention.position)
            if begin > before:
                _log.info(
                    "%s/%s: the log begins at %d now, %d bytes are gone: %s",
                    replica.config.group,
                    replica.config.node,
                    begin,
                    begin - before,
                    retention.reason,
                )
        finally:
            self._is_retaining = False
