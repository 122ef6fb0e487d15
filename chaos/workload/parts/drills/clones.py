"""Drills of clones: what one group has committed is copied to another one, of one topic or of all,
and nothing else of either group changes.

Place in the data path: `drills` makes one with each new set of groups, which have offsets in some
topics that nobody else knows and in no manifest are. CLONE_GROUP_OFFSET follows commits, and behind
it every offset of the destination is queried, and some of the others. The source has a member, or
none, which the leader knows by a heartbeat: another node's answer says nothing.

The model: a clone without a topic copies the source's offsets in all topics, one that names a topic
only those there, one of a topic that is not there none. Of a source with a member whose heartbeat
names topics it copies those in these topics alone, unless it is said that the source is offline.

Source: RocketMQ AdminBrokerProcessor.cloneGroupOffset, ConsumerOffsetManager.cloneOffset,
ConsumerManager.findSubscriptionData; docs/DIVERGENCE.md (CLONE_GROUP_OFFSET).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from chaos.workload.parts.common.drill import UNLISTED, Drill, Unsure
from chaos.workload.parts.drills.topic_of_drill import make_topic
from remoting.protocol.codes import RequestCode

__all__ = ["CloneDrill"]

GROUPS: Final = 3
TOPICS: Final = 3
QUEUES: Final = 2
STEPS: Final = (2, 4)
OFFSET_MAX: Final = 10_000
ONLINE_SHARE: Final = 0.5  # of the clones are of a source that has a member
NAMED_SHARE: Final = 0.6  # of the clones are of one topic

_Offsets = dict[tuple[str, int], int]  # by topic and queue


class CloneDrill:
    """Some groups, and what they have committed."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._topics = [f"{UNLISTED}{group}-cloned-{number}" for number in range(TOPICS)]
        self._offsets: dict[str, _Offsets] = {f"{group}-{n}": {} for n in range(GROUPS)}
        self._is_ready = False

    async def run(self) -> None:
        """Commit and clone some times, and query all. Raises Unsure, EndedError."""
        if not self._is_ready:
            for topic in self._topics:
                await self._make(topic)
            self._is_ready = True
        for group in self._offsets:
            await self._query_offsets(group)  # what the last round has left
        for _ in range(self._rng.randint(*STEPS)):
            await self._commit()
            await self._clone()
        for group in self._offsets:
            await self._query_offsets(group)

    async def _make(self, topic: str) -> None:
        await make_topic(self.drill, topic, queues=QUEUES)

    async def _commit(self) -> None:
        """Commit in all queues of a topic: where the destination has an offset in a queue in which
        the source has none, RocketMQ drops it, and this broker doesn't."""
        group, topic = self._rng.choice(list(self._offsets)), self._rng.choice(self._topics)
        for queue_id in range(QUEUES):
            offset = self._rng.randint(0, OFFSET_MAX)
            await self.drill.request(
                f"commit {offset} of {group} in {topic}-{queue_id}",
                RequestCode.UPDATE_CONSUMER_OFFSET,
                self._place(topic, queue_id, consumerGroup=group, commitOffset=offset),
                expected="0",
                changes=True,
            )
            self._offsets[group][topic, queue_id] = offset

    async def _clone(self) -> None:
        rng = self._rng
        source, destination = rng.sample(list(self._offsets), 2)
        if not self._offsets[source]:
            return  # nobody knows it yet
        wanted = None
        if rng.random() < NAMED_SHARE:
            wanted = rng.choice((*self._topics, *self._topics, f"{self._topics[0]}-not"))
        subscribed: Collection[str] = ()
        is_online = rng.random() < ONLINE_SHARE
        if is_online:
            subscribed = rng.sample(self._topics, rng.randint(1, TOPICS - 1))
            await self._join(source, subscribed)
        is_offline = rng.choice(("true", "false", None))
        fields = {"srcGroup": source, "destGroup": destination}
        fields |= {} if wanted is None else {"topic": wanted}
        fields |= {} if is_offline is None else {"offline": is_offline}
        cloned = {
            (topic, queue_id): offset
            for (topic, queue_id), offset in self._offsets[source].items()
            if wanted in {None, topic}
            and (is_offline == "true" or not subscribed or topic in subscribed)
        }
        answer = await self.drill.request(
            f"clone {source} to {destination}: topic {wanted}, offline {is_offline}, its member"
            f" has {sorted(subscribed)}",
            RequestCode.CLONE_GROUP_OFFSET,
            fields,
            expected="0",
            changes=True,
            only_by=self.drill.node if is_online else None,
        )
        if answer is None:
            raise Unsure  # another node may have known of no member
        self._offsets[destination] |= cloned
        if is_online:
            await self._leave(source)
        await self._query_offsets(destination)
        await self._query_offsets(source)

    # Members -------------------------------------------------------------------------------------

    async def _join(self, group: str, topics: Collection[str]) -> None:
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": topic, "subString": "*"} for topic in topics],
        }
        body = {"clientID": f"{group}@0", "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.drill.request(
            f"heartbeat of {group}, which has {sorted(topics)}",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )

    async def _leave(self, group: str) -> None:
        """Have the member leave the node that knows it. Raises Unsure where another one answers."""
        answer = await self.drill.request(
            f"the member of {group} leaves",
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": f"{group}@0", "consumerGroup": group},
            expected="0",
            changes=True,
            only_by=self.drill.node,
        )
        if answer is None:
            raise Unsure

    # Questions -----------------------------------------------------------------------------------

    async def _query_offsets(self, group: str) -> None:
        """Query every offset of a group."""
        known = self._offsets[group]
        for topic in self._topics:
            for queue_id in range(QUEUES):
                offset = known.get((topic, queue_id))
                await self.drill.request(
                    f"offset of {group} in {topic}-{queue_id}",
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    self._place(topic, queue_id, consumerGroup=group, setZeroIfNotFound="false"),
                    expected="22" if offset is None else f"0 {offset}",
                    show=lambda answer: " ".join(
                        [str(answer.code), *filter(None, [answer.ext_fields.get("offset")])]
                    ),
                )

    def _place(self, topic: str, queue_id: int, **more: object) -> dict[str, object]:
        return self.drill.place(**{"topic": topic, "queueId": queue_id, **more})
