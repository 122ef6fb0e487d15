"""GET_BROKER_HA_STATUS: the log's end at each replica, in RocketMQ's terms of master and slave.

Place in the data path: none; requested by `mqadmin haStatus`. The leader requests LEDGERMQ_STATUS
from every other member, which reports where that replica's log ends; a member that doesn't answer
is left out, as RocketMQ leaves out a slave that isn't connected. A follower reports its leader.

Source: RocketMQ AdminBrokerProcessor.getBrokerHaStatus, HARuntimeInfo, DefaultHAService.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec

from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from raft.messages import NodeId
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import ResetMasterFlushOffsetHeader

__all__ = ["HaStatusProcessor"]

_TIMEOUT_MS: Final = 1_000
_GAP_SIZE_MAX: Final = 256 << 20  # RocketMQ's haMaxGapNotInSync


class HaStatusProcessor:
    """Requests about the replicas of this group."""

    def __init__(
        self, replica: Replica, leadership: Leadership, desk: Desk, tasks: TaskOwner
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._tasks = tasks

    def ha_status(self, request: Request) -> None:
        """Answer GET_BROKER_HA_STATUS, once the other members have answered or timed out."""
        self._tasks.answer(request, lambda: self._answer(request))

    def reset_master_flush_offset(self, _: ResetMasterFlushOffsetHeader, request: Request) -> None:
        """Answer RESET_MASTER_FLUSH_OFFSET: ignored by a leader, as by RocketMQ's master. Raises
        RefusedError elsewhere, since Raft decides what a follower takes for durable."""
        if not self._leadership.ready:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, "what is durable at the leader is settled by Raft"
            )
        request.reply(ResponseCode.SUCCESS)

    async def _answer(self, request: Request) -> None:
        replica = self._replica
        status = replica.log.status()
        end = replica.log.retention_bounds().end_position
        body: dict[str, Any] = {"master": status.ready, "masterCommitLogMaxOffset": 0}
        if status.ready:
            members = {*status.voters, *status.learners} - {replica.config.node}
            found = await asyncio.gather(*(self._member(node, end) for node in sorted(members)))
            answered = [member for member in found if member is not None]
            body |= {
                "masterCommitLogMaxOffset": end,
                "inSyncSlaveNums": sum(member["inSync"] for member in answered),
                "haConnectionInfo": answered,
            }
        else:
            leader = status.leader_id
            body["haClientRuntimeInfo"] = {
                "masterAddr": None if leader is None else replica.broker_addresses.get(leader),
                "maxOffset": end,
                "masterFlushOffset": 0,
                "activated": leader is not None,
            }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    async def _member(self, node: NodeId, end: int) -> dict[str, Any] | None:
        """Return RocketMQ's HAConnectionRuntimeInfo, or None if the replica doesn't answer."""
        address = self._replica.broker_addresses.get(node)
        if address is None or self._desk.remoting is None:
            return None
        try:
            query = RemotingCommand(code=RequestCode.LEDGERMQ_STATUS)
            answer = await self._desk.remoting.request(address, query, _TIMEOUT_MS)
            status = json.loads(answer.body)
            position = int(status["end_position"])
            if status["group"] != self._replica.config.group:
                return None
        except (RemotingError, ValueError, KeyError, TypeError):
            return None
        diff = max(0, end - position)
        return {
            "addr": address,
            "slaveAckOffset": position,
            "diff": diff,
            "inSync": diff < _GAP_SIZE_MAX,
            "transferredByteInSecond": 0,  # not measured
            "transferFromWhere": 0,
        }
