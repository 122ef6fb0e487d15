"""One broker group that registers by hand at one name server: its names, what it says of itself,
and the model of what the name server knows of it.

Place in the data path: `chaos.workload.parts.operator.registrations` has two of them in a turn, in
two clusters, with topics of the same names; the answers that show a group are read here.

Invariant: a group changes its own topics and term alone; what others do to it (a deletion in its
cluster, say) reaches its model by the turn.

Source: RocketMQ RouteInfoManager, RegisterBrokerBody.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.workload.parts.operator.registration_model import GroupModel, Queues, Version
from remoting.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    encode_register_body,
)

__all__ = ["TOPICS", "RegisteredGroup", "addresses_of", "data_version", "text_of"]

TOPICS: Final = ("one", "two", "three")
FIRST_TERM: Final = 3


class RegisteredGroup:
    """A group of a turn. `topics`: the turn's, which both of its groups may have. `addresses`:
    where its members say that they are."""

    def __init__(
        self,
        name: str,
        cluster: str,
        *,
        topics: Sequence[str],
        addresses: Sequence[str],
        rng: random.Random,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.addresses = tuple(addresses)
        self.model = GroupModel()
        self.term = FIRST_TERM
        self.counter = 0
        self._names = tuple(topics)
        self._topics: dict[str, Queues] = {}
        self._rng = rng

    @property
    def topics(self) -> Mapping[str, Queues]:
        """What its leader registers."""
        return self._topics

    def change_topics(self) -> None:
        """Give some of the topics other queues; it has one more from now on, perhaps."""
        self.counter += 1
        rng = self._rng
        for topic in rng.sample(self._names, rng.randint(1, len(self._names))):
            self._topics[topic] = self.draw_queues()

    def draw_queues(self) -> Queues:
        rng = self._rng
        return Queues(
            read=rng.randint(1, 9), write=rng.randint(1, 9), perm=rng.choice((2, 4, 6)), flag=0
        )

    def identity(self, address: str, number: int) -> dict[str, str]:
        """Return the fields by which a member names itself."""
        return {
            "brokerName": self.name,
            "brokerAddr": address,
            "clusterName": self.cluster,
            "brokerId": str(number),
        }

    def register_body(self, version: Version, *, compressed: bool) -> bytes:
        topics = [_topic_config(topic, queues) for topic, queues in self._topics.items()]
        body = RegisterBrokerBody(data_version=data_version(version), topics=topics)
        return encode_register_body(body, compressed=compressed)

    def number_of(self, address: str) -> int:
        """Return the number of a member that is there."""
        rows = (row.split("=") for row in self.model.members_text().split())
        return next(int(number) for number, at in rows if at == address)


def data_version(version: Version) -> DataVersion:
    return DataVersion(state_version=version.term, counter=version.counter)


def _topic_config(topic: str, queues: Queues) -> TopicConfig:
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues.read,
        write_queue_nums=queues.write,
        perm=queues.perm,
        topic_sys_flag=queues.flag,
    )


def addresses_of(brokers: Sequence[Mapping[str, Any]] | None, name: str) -> str:
    """Return the members of a group in a route."""
    for each in brokers or ():
        if each.get("brokerName") == name:
            return text_of(each.get("brokerAddrs"))
    return "-"


def text_of(addresses: Mapping[str, str] | None) -> str:
    """Return members by their numbers, as `GroupModel.members_text` does."""
    rows = sorted((int(number), address) for number, address in (addresses or {}).items())
    return " ".join(f"{number}={address}" for number, address in rows) or "-"
