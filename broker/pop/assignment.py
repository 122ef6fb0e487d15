"""QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE: the broker assigns queues to consumers.

Place in the data path: a 5.x push consumer without client-side rebalancing queries one broker of
its topic; the queues come from the route of a name server, the members from this broker's
heartbeats. A consumer that pops gets whole topics (queue -1), or shares of queues where that was
set; one that pulls gets queues as client-side rebalancing would assign them. The mode is replicated
(`broker.state.pop_state`).

Rules: RocketMQ QueryAssignmentProcessor, MessageRequestModeManager. Strategies here: AVG and
AVG_BY_CIRCLE; for others the answer has no assignments, which clients skip.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from broker.entry.pop_commands import RequestModeCommand
from broker.entry.topics import PERM_READ, RETRY_PREFIX, TopicNameError, check_group_name
from broker.request.commit import commit
from broker.request.deleted_topics import refuse_while_being_deleted
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from broker.state.pop_state import RequestMode
from remoting.errors import BodyError, RemotingError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import QUEUES_MAX, TopicRouteData

__all__ = ["AssignmentProcessor"]

_log = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 3_000
_MODES_MAX: Final = 100_000
_SHARE_MAX: Final = 1_024
_PULL: Final = "PULL"
_POP: Final = "POP"


class _Queue(NamedTuple):
    topic: str
    broker_name: str
    queue_id: int


class _AssignmentRequest(msgspec.Struct):
    topic: str
    consumerGroup: str
    clientId: str
    strategyName: str = "AVG"
    messageModel: str = "CLUSTERING"


class _ModeRequest(msgspec.Struct):
    topic: str
    consumerGroup: str
    mode: str = _PULL
    popShareQueueNum: int = 0


_T = TypeVar("_T", _AssignmentRequest, _ModeRequest)


class AssignmentProcessor:
    """Handler of assignments, and of the mode in which a group consumes a topic."""

    def __init__(
        self, replica: Replica, leadership: Leadership, desk: Desk, tasks: TaskOwner
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._tasks = tasks

    def query(self, request: Request) -> None:
        """Answer with the queues of one consumer (QUERY_ASSIGNMENT). Raises RefusedError."""
        wanted = _decoded(request, _AssignmentRequest)
        self._tasks.answer(request, lambda: self._query(request, wanted))

    async def _query(self, request: Request, wanted: _AssignmentRequest) -> None:
        known = self._replica.state.pop.modes.get((wanted.topic, wanted.consumerGroup))
        mode = known or RequestMode(_PULL, 0)
        queues = await self._queues(wanted.topic)
        mine = None if queues is None else self._assigned(wanted, mode, queues)
        rows = None
        if mine is not None:
            rows = [
                {
                    "messageQueue": {
                        "topic": queue.topic,
                        "brokerName": queue.broker_name,
                        "queueId": queue.queue_id,
                    },
                    "mode": mode.mode,
                    "attachments": None,
                }
                for queue in dict.fromkeys(mine)
            ]
        request.reply(
            ResponseCode.SUCCESS, body=msgspec.json.encode({"messageQueueAssignments": rows})
        )

    def _assigned(
        self, wanted: _AssignmentRequest, mode: RequestMode, queues: list[_Queue]
    ) -> Sequence[_Queue] | None:
        """Return the consumer's queues; None: the client shall keep those that it has."""
        if wanted.messageModel == "BROADCASTING":
            return queues
        clients = self._desk.clients.consumer_ids(wanted.consumerGroup)
        allocate = _STRATEGIES.get(wanted.strategyName)
        if not clients or allocate is None:
            return None
        if wanted.clientId not in clients:
            return []
        at = clients.index(wanted.clientId)
        if mode.mode == _PULL:
            return allocate(queues, at, len(clients))
        share = mode.share_queue_count
        if share <= 0 or share >= len(clients) - 1:
            return [queue._replace(queue_id=-1) for queue in queues]
        if len(clients) > len(queues):
            return [queues[at % len(queues)]] if queues else []
        members = [(at + step) % len(clients) for step in range(share + 1)]
        return [queue for member in members for queue in allocate(queues, member, len(clients))]

    async def _queues(self, topic: str) -> list[_Queue] | None:
        """Return the topic's readable queues, of all brokers; None where the topic is unknown."""
        replica, desk = self._replica, self._desk
        if desk.remoting is None or not replica.config.name_servers:
            known = replica.state.topics.get(topic)
            if known is None or not known.readable:
                return None
            return [_Queue(topic, replica.config.group, at) for at in range(known.read_queue_count)]
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}
        )
        for name_server in replica.config.name_servers:
            try:
                answer = await desk.remoting.request(name_server, command, _TIMEOUT_MS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                route = fastjson.decode(answer.body, TopicRouteData)
            except (RemotingError, BodyError):
                continue  # the next one may know
            queue_count = sum(data.read_queue_nums for data in route.queue_datas)
            if queue_count > QUEUES_MAX:
                _log.warning("%s has %d queues: none is assigned", topic, queue_count)
                return None
            return sorted(
                _Queue(topic, data.broker_name, at)
                for data in route.queue_datas
                if data.perm & PERM_READ
                for at in range(data.read_queue_nums)
            )
        return None

    def set_mode(self, request: Request) -> None:
        """Set how a group consumes a topic (SET_MESSAGE_REQUEST_MODE); answered once committed.
        Raises RefusedError."""
        replica = self._replica
        wanted = _decoded(request, _ModeRequest)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise RefusedError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if wanted.topic not in replica.state.topics:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist")
        refuse_while_being_deleted(self._leadership, wanted.topic)
        if wanted.mode not in {_PULL, _POP} or not 0 <= wanted.popShareQueueNum <= _SHARE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"mode {wanted.mode[:40]!r}, popShareQueueNum {wanted.popShareQueueNum}",
            )
        modes = replica.state.pop.modes
        if (wanted.topic, wanted.consumerGroup) not in modes and len(modes) >= _MODES_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most modes already")
        command = RequestModeCommand(
            wanted.topic, wanted.consumerGroup, wanted.mode, wanted.popShareQueueNum
        )

        commit(self._leadership, request, [command])


def _decoded(request: Request, kind: type[_T]) -> _T:
    """Decode the body as `kind`. Raises RefusedError."""
    try:
        decoded = fastjson.decode_request(request.command.body, kind)
        check_group_name(decoded.consumerGroup)
    except (BodyError, TopicNameError) as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    return decoded


def _average(queues: Sequence[_Queue], at: int, count: int) -> Sequence[_Queue]:
    size, more = divmod(len(queues), count)
    start = at * size + min(at, more)
    return queues[start : start + size + (at < more)]


def _by_circle(queues: Sequence[_Queue], at: int, count: int) -> Sequence[_Queue]:
    return queues[at::count]


_STRATEGIES: Final[dict[str, Callable[[Sequence[_Queue], int, int], Sequence[_Queue]]]] = {
    "AVG": _average,
    "AVG_BY_CIRCLE": _by_circle,
}
