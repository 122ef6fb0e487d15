"""Raft membership and leadership, as operators request them: LEDGERMQ_MEMBERS,
LEDGERMQ_CHANGE_MEMBER, LEDGERMQ_TRANSFER.

Place in the data path: `ledgermq cluster member` and `cluster transfer` send these to the group's
leader. Each change is one step (`raft.membership`); the log checks its preconditions (a learner has
caught up, the previous change is committed), and the caller waits for them.

Answers: 0 done and committed; 2 not now, retry; 14 not the leader; 29 impossible; 1 the outcome is
unknown. All but the last are definite.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.config.config import ConfigError, split_address
from broker.request.leadership import Leadership
from broker.request.proposal_answers import refused_of
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from raft.events import ChangeRefusal
from raft.membership import (
    AddLearner,
    Member,
    MembershipChange,
    MembershipError,
    PromoteLearner,
    RemoveMember,
)
from raft.messages import NodeId
from raft.replicated_log import ChangeRefusedError, NotLeaderError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import ChangeMemberRequestHeader, TransferLeadershipRequestHeader

__all__ = ["RaftMembersProcessor"]

_CODES: Final = {
    ChangeRefusal.NOT_LEADER: ResponseCode.SERVICE_NOT_AVAILABLE,
    ChangeRefusal.NOT_READY: ResponseCode.SYSTEM_BUSY,
    ChangeRefusal.UNDERWAY: ResponseCode.SYSTEM_BUSY,
    ChangeRefusal.HANDING_OVER: ResponseCode.SYSTEM_BUSY,
    ChangeRefusal.NOT_CAUGHT_UP: ResponseCode.SYSTEM_BUSY,
    ChangeRefusal.NO_MAJORITY: ResponseCode.SYSTEM_BUSY,
    ChangeRefusal.IMPOSSIBLE: ResponseCode.INVALID_PARAMETER,
}


class RaftMembersProcessor:
    """Requests about the members of this group. Handlers raise RefusedError; else the answer
    follows."""

    def __init__(self, replica: Replica, leadership: Leadership, tasks: TaskOwner) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks

    def members(self, request: Request) -> None:
        """Answer LEDGERMQ_MEMBERS with the membership in force at this replica, without a read
        point: it may be behind."""
        membership = self._replica.log.membership()
        body = {
            what: [
                {"node": member.node_id, "address": member.address, "store_id": member.store_id}
                for member in members
            ]
            for what, members in (("voters", membership.voters), ("learners", membership.learners))
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def change(self, header: ChangeMemberRequestHeader, request: Request) -> None:
        """Change the membership by one step (LEDGERMQ_CHANGE_MEMBER)."""
        self._require_ready()
        change = _change_of(header)
        self._tasks.answer(request, lambda: self._change(request, change))

    def transfer(self, header: TransferLeadershipRequestHeader, request: Request) -> None:
        """Transfer leadership to another member (LEDGERMQ_TRANSFER); the answer follows once this
        node has ceased to lead."""
        self._require_ready()
        node = NodeId(header.node)
        self._tasks.answer(request, lambda: self._transfer(request, node))

    async def _change(self, request: Request, change: MembershipChange) -> None:
        try:
            result = await self._replica.log.change_membership(change)
        except NotLeaderError:
            request.refuse(self._leadership.not_leader())
        except ChangeRefusedError as error:
            request.reply(_CODES[error.refused.reason], str(error))
        else:
            refused = refused_of(result.status, self._leadership.not_leader)
            if refused is None:
                request.reply(ResponseCode.SUCCESS)
            else:
                request.refuse(refused)

    async def _transfer(self, request: Request, target: NodeId) -> None:
        try:
            await self._replica.log.transfer_leadership(target)
        except NotLeaderError:
            request.refuse(self._leadership.not_leader())
        except ValueError as error:
            request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        except TimeoutError:
            request.reply(
                ResponseCode.SYSTEM_BUSY, f"{target} did not take over in time; this node leads on"
            )
        else:
            request.reply(ResponseCode.SUCCESS)

    def _require_ready(self) -> None:
        """Raises RefusedError (14) unless this node leads. Unlike `Leadership.require_leader`
        a full disk does not matter: removing a member may be the cure."""
        if not self._leadership.ready:
            raise self._leadership.not_leader()


def _change_of(header: ChangeMemberRequestHeader) -> MembershipChange:
    """Raises RefusedError where the fields describe no change."""
    node = NodeId(header.node)
    try:
        member = Member(node_id=node, address=header.address, store_id=header.store_id)
        match header.change:
            case "add":
                split_address("address", member.address)
                return AddLearner(member=member)
            case "promote":
                return PromoteLearner(node_id=node)
            case "remove":
                return RemoveMember(node_id=node)
            case _:
                raise RefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"change {header.change[:40]!r} is none of add, promote, remove",
                )
    except (MembershipError, ConfigError) as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
