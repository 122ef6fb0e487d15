"""Topics and groups: their settings, members, locks and offsets.

Place in the data path: a speaker of `talk`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from chaos.workload.talks.talk_desk import CLIENTS, GROUPS, QUEUES, TOPICS, Desk
from remoting.protocol.codes import RequestCode as Code
from remoting.protocol.command import RemotingCommand

__all__ = ["GroupTalk"]

_LATE_MS: Final = 1 << 42


class GroupTalk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kinds(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        """Return the questions, and how often each is sent."""
        return {
            self._commit: 5,
            self._offset: 5,
            self._consume_stats: 3,
            self._heartbeat: 2,
            self._leave: 1,
            self._members: 3,
            self._connections: 2,
            self._lock: 4,
            self._reset: 3,
            self._clone: 2,
            self._change_topic: 2,
            self._change_group: 2,
            self._configs: 3,
            self._remove_group: 1,
        }

    async def make_all(self) -> None:
        """Make the topics and groups that the questions are about."""
        for number in range(TOPICS):
            await self._make_topic(self._desk.topic_name(number), QUEUES, QUEUES, 6)
        for number in range(GROUPS):
            await self._make_group(self._desk.group_name(number), {})

    async def _make_topic(self, name: str, reads: int, writes: int, perm: int) -> None:
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": reads,
            "writeQueueNums": writes,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        await self._desk.step("make a topic", Code.UPDATE_AND_CREATE_TOPIC, fields)

    async def _make_group(self, name: str, settings: Mapping[str, Any]) -> None:
        body = json.dumps({"groupName": name, "consumeEnable": True, **settings}).encode()
        await self._desk.step("make a group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)

    async def _change_topic(self) -> None:
        name, perm = self._desk.topic(), self._desk.odd(6, 2, 4)
        await self._make_topic(
            name, self._desk.odd(QUEUES, 1, 3), self._desk.odd(QUEUES, 1, 3), perm
        )
        await self._make_topic(name, QUEUES, QUEUES, 6)

    async def _change_group(self) -> None:
        settings = {
            "retryMaxTimes": self._desk.odd(16, 0, 1, 3),
            "retryQueueNums": self._desk.odd(1, 2),
            "consumeEnable": self._desk.odd(True, False, share=0.1),
            "consumeBroadcastEnable": self._desk.odd(True, False),
            "brokerId": self._desk.odd(0, 1),
            "whichBrokerWhenConsumeSlowly": self._desk.odd(1, 0),
        }
        name = self._desk.group()
        await self._make_group(name, settings)
        if self._desk.rng.random() < 0.7:
            await self._make_group(name, {})

    async def _configs(self) -> None:
        if self._desk.rng.random() < 0.5:
            fields = {"topic": self._desk.topic()}
            await self._desk.step("topic config", Code.GET_TOPIC_CONFIG, fields)
        else:
            fields = {"group": self._desk.group()}
            await self._desk.step("group config", Code.GET_SUBSCRIPTIONGROUP_CONFIG, fields)

    async def _remove_group(self) -> None:
        # Not one that locks: RocketMQ keeps its locks for a minute, ledgermq as long as the group.
        fields = {
            "groupName": self._desk.popping_group(),
            "cleanOffset": self._desk.odd("true", "false"),
        }
        name = str(fields["groupName"])
        await self._desk.step("remove a group", Code.DELETE_SUBSCRIPTIONGROUP, fields)
        await self._make_group(name, {})
        self._forget_popped(name)

    def _forget_popped(self, group: str) -> None:
        known = self._desk.known
        known.popped = [one for one in known.popped if one.group != group]

    async def _commit(self) -> None:
        fields = {
            "consumerGroup": self._desk.pulling_group(),
            "topic": self._desk.topic(),
            "queueId": self._desk.rng.randrange(QUEUES),
            "commitOffset": self._desk.offset_near(),
        }
        await self._desk.step("commit", Code.UPDATE_CONSUMER_OFFSET, fields)
        if self._desk.rng.random() < 0.5:
            fields.pop("commitOffset")
            await self._desk.step("offset", Code.QUERY_CONSUMER_OFFSET, fields)

    async def _offset(self) -> None:
        fields = {
            "consumerGroup": self._desk.group(),
            "topic": self._desk.topic(),
            "queueId": self._desk.queue(),
            "setZeroIfNotFound": self._desk.rng.choice(("true", "false", None)),
        }
        await self._desk.step("offset", Code.QUERY_CONSUMER_OFFSET, fields)

    async def _consume_stats(self) -> None:
        fields = {"consumerGroup": self._desk.group()}
        if self._desk.rng.random() < 0.6:
            fields["topic"] = self._desk.topic()
        await self._desk.step("consume stats", Code.GET_CONSUME_STATS, fields)

    async def _connections(self) -> None:
        fields = {"consumerGroup": self._desk.group()}
        await self._desk.step("connections", Code.GET_CONSUMER_CONNECTION_LIST, fields)

    async def _heartbeat(self) -> None:
        rng = self._desk.rng
        # Of all topics: RocketMQ takes what was pulled for a subscription, too.
        subscriptions = [
            {
                "topic": self._desk.topic_name(number),
                "subString": "*",
                "tagsSet": [],
                "codeSet": [],
                "subVersion": 1,
                "expressionType": "TAG",
                "classFilterMode": False,
            }
            for number in range(TOPICS)
        ]
        consumer = {
            "groupName": self._desk.group(),
            "consumeType": rng.choice(("CONSUME_PASSIVELY", "CONSUME_ACTIVELY")),
            "messageModel": rng.choice(("CLUSTERING", "BROADCASTING")),
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": subscriptions,
        }
        body = {
            "clientID": self._desk.client(CLIENTS[0]),
            "producerDataSet": [{"groupName": f"{self._desk.name}-p"}],
            "consumerDataSet": [consumer],
        }
        await self._desk.step("heartbeat", Code.HEART_BEAT, {}, json.dumps(body).encode())

    async def _leave(self) -> None:
        fields = {"clientID": self._desk.client(CLIENTS[0]), "consumerGroup": self._desk.group()}
        await self._desk.step("leave", Code.UNREGISTER_CLIENT, fields)

    async def _members(self) -> None:
        fields = {"consumerGroup": self._desk.group()}
        await self._desk.step("members", Code.GET_CONSUMER_LIST_BY_GROUP, fields)

    async def _lock(self) -> None:
        topic = self._desk.topic_name(self._desk.rng.randrange(TOPICS))
        queues = [
            {"topic": topic, "brokerName": self._desk.broker_name, "queueId": number}
            for number in self._desk.rng.sample(range(QUEUES), self._desk.rng.randint(1, QUEUES))
        ]
        body = {
            "consumerGroup": self._desk.pulling_group(),
            "clientId": self._desk.client(self._desk.rng.choice(CLIENTS)),
            "mqSet": queues,
        }
        code = self._desk.odd(Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, share=0.3)
        await self._desk.step(Code(code).name.lower(), code, {}, json.dumps(body).encode())

    async def _reset(self) -> None:
        known = self._desk.one_of(self._desk.known.sent)
        at = -1 if known is None else await self._desk.stored_ms(known)
        fields = {
            "topic": self._desk.topic(),
            "group": self._desk.group_name(self._desk.rng.randrange(GROUPS)),
            "timestamp": self._desk.odd(at, -1, 0, _LATE_MS),
            "isForce": "true",  # RocketMQ 5 always moves, ledgermq as it is told
            "isC": "false",
        }
        if self._desk.rng.random() < 0.4:
            fields["queueId"] = self._desk.odd(self._desk.rng.randrange(QUEUES), -1)
            fields["offset"] = self._desk.rng.choice((0, -1, 50))
        await self._desk.step("reset", Code.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        self._forget_popped(str(fields["group"]))  # a reset gives back what was popped
        await self._follow(str(fields["group"]), str(fields["topic"]))

    async def _follow(self, group: str, topic: str) -> None:
        """Follow a reset in each queue, before anything else of the group comes there."""
        for queue in range(QUEUES):
            fields = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": queue,
                "queueOffset": 0,
                "maxMsgNums": 1,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 1,
                "subscription": "*",
                "expressionType": "TAG",
            }
            texts = {name: str(value) for name, value in fields.items()}
            command = RemotingCommand(code=int(Code.PULL_MESSAGE), ext_fields=texts)
            answer = await self._desk.request(command)
            await self._desk.follow(answer, Code.PULL_MESSAGE, fields)

    async def _clone(self) -> None:
        fields = {
            "srcGroup": self._desk.pulling_group(),
            "destGroup": self._desk.pulling_group(),
            "topic": self._desk.topic(),  # without one RocketMQ clones nothing
            "offline": self._desk.rng.choice(("true", "false")),
        }
        await self._desk.step("clone offsets", Code.CLONE_GROUP_OFFSET, fields)
