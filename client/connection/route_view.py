"""A client's view of a topic's route: queues to write and to read, nodes to send to; pure.

Place in the data path: `client.connection.routes` fetches TopicRouteData from a name server and
stores the `TopicRoute` decoded here.

Invariants: queues are in (broker, queue id) order. `write_queues` leaves out groups without a
leader in the route as long as another group has one; where no group has one, all are included (an
election is in progress, and the nodes will hint at the leader).

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
        """Return this route (of the default topic) for a `topic` that a send is yet to create."""
        queues = tuple(
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in self.write_queues
            if queue.queue_id < DEFAULT_TOPIC_QUEUES
        )
        return TopicRoute(topic=topic, groups=self.groups, write_queues=queues, read_queues=())


def decode_topic_route(topic: str, body: bytes) -> TopicRoute:
    """Decode the route in the body of a name server's answer. Raises MalformedAnswerError."""
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
