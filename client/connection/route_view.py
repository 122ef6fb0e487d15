"""What a client makes of a topic's route: queues to write to, queues to read, nodes to ask; pure.

Place in the data path: `client.connection.routes` fetches TopicRouteData from a name server and
keeps the `TopicRoute` made of it here.

Invariants: queues are in (broker, queue id) order; queues of groups whose leader the route names
come before all others in `write_queues` only by being the sole ones: a group without a leader is
left out as long as another one has one, and kept where none has (an election is under way, and its
nodes will say who leads).

Source: RocketMQ TopicRouteData, MQClientInstance.topicRouteData2TopicPublishInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from client.connection.send_codec import DEFAULT_TOPIC_QUEUES
from client.errors import MalformedAnswerError
from client.message import MessageQueue
from remoting.errors import BodyError
from remoting.protocol.route import MASTER_ID, PERM_READ, PERM_WRITE, decode_route

__all__ = ["TopicRoute", "decode_topic_route"]

_QUEUES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """The route of one topic. `groups`: broker name -> broker id -> table address."""

    topic: str
    groups: Mapping[str, Mapping[int, str]]
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]

    def as_default_for(self, topic: str) -> TopicRoute:
        """This route (of the default topic) as that of a `topic` yet to be created by a send."""
        queues = tuple(
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in self.write_queues
            if queue.queue_id < DEFAULT_TOPIC_QUEUES
        )
        return TopicRoute(topic=topic, groups=self.groups, write_queues=queues, read_queues=())


def decode_topic_route(topic: str, body: bytes) -> TopicRoute:
    """The route in the body of a name server's answer. Raises MalformedAnswerError."""
    try:
        data = decode_route(body)
    except BodyError as error:
        raise MalformedAnswerError(f"route of topic {topic}: {error}") from error
    queues = data.queue_datas
    if sum(queue.read_queue_nums + queue.write_queue_nums for queue in queues) > _QUEUES_MAX:
        raise MalformedAnswerError(f"route of topic {topic} has more than {_QUEUES_MAX} queues")
    groups = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    known = [queue for queue in queues if groups.get(queue.broker_name)]
    writable = [queue for queue in known if queue.perm & PERM_WRITE]
    led = [queue for queue in writable if MASTER_ID in groups[queue.broker_name]]
    return TopicRoute(
        topic=topic,
        groups=groups,
        write_queues=_queues(
            topic, ((queue.broker_name, queue.write_queue_nums) for queue in led or writable)
        ),
        read_queues=_queues(
            topic,
            (
                (queue.broker_name, queue.read_queue_nums)
                for queue in known
                if queue.perm & PERM_READ
            ),
        ),
    )


def _queues(topic: str, counts: Iterable[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(topic, broker_name, queue_id)
            for broker_name, count in counts
            for queue_id in range(count)
        )
    )
