"""Drills of a topic whose settings change under its clients: what may be sent to which queue, read
from it, popped and locked, and who is known to consume it.

Place in the data path: `drills` makes one with each new group, whose topic nobody else knows; its
numbers of queues, permission and `dedupe` change again and again, and after each change it is used
as clients do whose routes are old: plain sends to queues that are there no more, or are again.
Requests go through `drill.Drill`.

The model: a queue takes sends below the greater of both numbers of queues, whatever the permission;
it is read, popped and locked below the number to read; what it has taken stays its own while it
can't be read. Consumers are the groups that subscribe or have an offset, online or not.

Source: RocketMQ AbstractSendMessageProcessor.msgCheck, PullMessageProcessor, PopMessageProcessor,
RebalanceLockManager, AdminBrokerProcessor.queryTopicConsumeByWho; docs/DIVERGENCE.md (`dedupe`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE, MessageMaker, wall_ms
from chaos.workload.parts.common.drill import UNLISTED, Drill, Unsure
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.common.shown_answers import values_of
from chaos.workload.parts.drills.owners import show_locked
from client.connection.send_codec import prepare_message
from client.message import Message, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["TopicDrill"]

QUEUES_MAX: Final = 5
CHANGES: Final = 3
SENDS: Final = 2  # behind each change
LISTED_SHARE: Final = 0.7  # of the topics are like those of applications
DRAINED_SHARE: Final = 0.4  # of the changes leave fewer queues to write than to read
PERMS: Final = (6, 6, 6, 4, 2)
PULLED_MAX: Final = 32
INVISIBLE_MS: Final = 6 * 3_600_000
RETRIED_SHARE: Final = 0.6  # of what is sent under one key
OTHER_BODY_SHARE: Final = 0.5  # of the rest: nothing but its body is another, of the same length
KEY_BITS: Final = 128  # of a UNIQ_KEY as clients write them: letters and digits
_READ: Final = 4  # bit of a permission
_REFUSED: Final = "16"
_ILLEGAL: Final = "13"
_BAD_PARAMETER: Final = "29"
_POPPED_NOTHING: Final = "210"
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    read: int
    write: int
    perm: int
    dedupes: bool

    @property
    def taken(self) -> int:
        """Return how many queues take sends."""
        return max(self.read, self.write)


class TopicDrill:
    """One topic, made by its first change, and the groups that consume it."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._group = group
        # Others have no `dedupe`; and there rules take no key that stands twice for a violation.
        self._is_listed = drill.rng.random() < LISTED_SHARE
        self._topic = f"{'' if self._is_listed else UNLISTED}drills-changed-{group}"
        self._settings: _Settings | None = None
        self._stored: dict[int, list[str]] = {}  # "offset:value" by queue
        self._popped = 0  # groups that have popped
        self._committed: set[str] = set()  # groups that have an offset
        self._maker = MessageMaker(prefix=f"{group}.changed", body_bytes=60, rng=drill.rng)

    async def run(self) -> None:
        """Change the topic some times, and use it after each change. Raises Unsure, EndedError."""
        if self._settings is not None:
            raise Unsure  # it was ended in the middle of that
        for _ in range(CHANGES):
            settings = await self._change()
            # First by the queue that is the last one now, and the one behind it: both were others.
            for queue_id in (settings.taken - 1, settings.taken):
                await self._send(settings, queue_id)
            for _ in range(SENDS):
                await self._send(settings, self._rng.randrange(-1, QUEUES_MAX + 1))
            await self._repeat(settings)
            await self._lock(settings)
            for queue_id in range(QUEUES_MAX):
                await self._pull(settings, queue_id)
            await self._pop(settings, self._rng.randrange(QUEUES_MAX))
            await self._query_ends()
            await self._query_consumers(settings)
        raise Unsure  # the next one makes a topic of its own

    # Changes -----------------------------------------------------------------------------------

    async def _change(self) -> _Settings:
        """Make the topic, or give it other settings."""
        rng, before = self._rng, self._settings
        read = rng.randint(1, QUEUES_MAX)
        write = rng.randint(1, read if rng.random() < DRAINED_SHARE else QUEUES_MAX)
        after = _Settings(
            read=read, write=write, perm=rng.choice(PERMS), dedupes=rng.random() < 0.5
        )
        if before is not None and rng.random() < DRAINED_SHARE:
            # Nothing but less queues: one by one, as an operator drains them.
            after = dataclasses.replace(before, read=min(read, before.read), write=1)
        self._settings = after
        await self.drill.request(
            f"topic {self._topic}: {after}",
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": self._topic,
                "defaultTopic": DEFAULT_TOPIC,
                "readQueueNums": after.read,
                "writeQueueNums": after.write,
                "perm": after.perm,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": "false",
                "attributes": f"+dedupe={str(after.dedupes).lower()}",
            },
            expected="0",
            changes=True,
        )
        return after

    # Sends -------------------------------------------------------------------------------------

    def _make(self, uniq_key: str | None = None) -> Message:
        message = self._maker.make(
            self._topic, uniq_key=uniq_key or f"{self._rng.getrandbits(KEY_BITS):032X}"
        )
        message.born_timestamp_ms = wall_ms()
        if self._rng.random() < 0.8:
            message.flag = 0  # as applications send: brokers may have a shorter way for these
        return message

    def _command(self, message: Message, queue_id: int) -> RemotingCommand:
        prepared = prepare_message(message, group=f"{self._group}-producers", compression=None)
        return prepared.command(MessageQueue(self._topic, self.drill.queue.broker_name, queue_id))

    async def _send(self, settings: _Settings, queue_id: int) -> tuple[int, Message] | None:
        """Send one message to a queue, -1: the broker chooses; return where it is, if it may be."""
        message = self._make()
        command = self._command(message, queue_id)
        if queue_id >= settings.taken:
            await self.drill.request(
                f"send to queue {queue_id} of {self._topic}, which has {settings.taken}",
                RequestCode(command.code),
                command.ext_fields,
                body=command.body,
                expected=_BAD_PARAMETER,
                changes=True,
            )
            return None
        answer = await self.drill.send([message], command, queue_id=queue_id)
        shown = answer.ext_fields.get("queueId", "")
        number = int(shown) if shown.isdecimal() else -1
        if queue_id < 0:
            self.drill.record(
                f"queue that the broker chooses in {self._topic}, {settings.write} to write",
                expected="one to write",
                answered="one to write" if 0 <= number < settings.write else shown,
            )
        stored = self._stored.setdefault(number, [])
        self._hold_place(message, f"{queue_id if queue_id >= 0 else number} {len(stored)}", answer)
        stored.append(f"{len(stored)}:{message.properties[PROPERTY_VALUE]}")
        return number, message

    async def _repeat(self, settings: _Settings) -> None:
        """Send one more, and it again or another one under its key: where the topic has `dedupe`,
        the one is a retry, and the other is refused."""
        if self._is_listed and not settings.dedupes:
            return  # it would stand there twice by right
        sent = await self._send(settings, self._rng.randrange(settings.taken))
        assert sent is not None
        queue_id, first = sent
        is_retry = self._rng.random() < RETRIED_SHARE
        again = first if is_retry else self._make(first.uniq_key)
        if self._is_listed and not is_retry:
            if self._rng.random() < OTHER_BODY_SHARE:
                again = dataclasses.replace(first, body=_changed(first.body))
            command = self._command(again, queue_id)
            await self.drill.request(
                f"send of another message under the key {first.uniq_key} to {self._topic}",
                RequestCode(command.code),
                command.ext_fields,
                body=command.body,
                expected=_ILLEGAL,
                changes=True,
            )
            return
        answer = await self.drill.send([again], self._command(again, queue_id), queue_id=queue_id)
        stored = self._stored[queue_id]
        if self._is_listed:
            self._hold_place(again, f"{queue_id} {len(stored) - 1}", answer)
            return
        self._hold_place(again, f"{queue_id} {len(stored)}", answer)
        stored.append(f"{len(stored)}:{again.properties[PROPERTY_VALUE]}")

    def _hold_place(self, message: Message, expected: str, answer: RemotingCommand) -> None:
        """Hold what an answer says of where a message is. Raises Unsure."""
        field = answer.ext_fields.get
        self.drill.record(
            f"place of {message.properties[PROPERTY_VALUE]}, key {message.uniq_key}, in"
            f" {self._topic}: {self._settings}",
            expected=expected,
            answered=f"{field('queueId')} {field('queueOffset')}",
        )

    # Reading -----------------------------------------------------------------------------------

    def _readable(self, settings: _Settings, queue_id: int) -> str | None:
        """Return the code with which reading a queue is refused; None: it is not."""
        if not settings.perm & _READ:
            return _REFUSED
        return _BAD_PARAMETER if queue_id >= settings.read else None

    def _place(self, queue_id: int, **more: object) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": queue_id,
            "bname": self.drill.queue.broker_name,
            **more,
        }

    async def _pull(self, settings: _Settings, queue_id: int) -> None:
        stored = self._stored.get(queue_id, [])
        if len(stored) > PULLED_MAX:
            raise Unsure
        found = f"0 {','.join(stored)}" if stored else "19 "
        refused = self._readable(settings, queue_id)
        await self.drill.request(
            f"pull of queue {queue_id} of {self._topic}: {settings}",
            RequestCode.PULL_MESSAGE,
            self._place(
                queue_id,
                consumerGroup=f"{self._group}-pulls",
                queueOffset=0,
                maxMsgNums=PULLED_MAX,
                sysFlag=_WITH_SUBSCRIPTION,
                commitOffset=0,
                suspendTimeoutMillis=0,
                subVersion=0,
                subscription="*",
            ),
            expected=found if refused is None else f"{refused} ",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
            is_calm=True,
        )

    async def _pop(self, settings: _Settings, queue_id: int) -> None:
        """Pop all of a queue as a new group."""
        self._popped += 1
        stored = self._stored.get(queue_id, [])
        refused = self._readable(settings, queue_id)
        found = f"0 {','.join(stored)}" if stored else f"{_POPPED_NOTHING} "
        await self.drill.request(
            f"pop of queue {queue_id} of {self._topic}: {settings}",
            RequestCode.POP_MESSAGE,
            self._place(
                queue_id,
                consumerGroup=f"{self._group}-pops-{self._popped}",
                maxMsgNums=PULLED_MAX,
                invisibleTime=INVISIBLE_MS,
                pollTime=0,
                bornTime=0,
                initMode=0,
                order="false",
            ),
            expected=found if refused is None else f"{refused} ",
            show=lambda answer: f"{answer.code} {values_of(answer)}",
            is_calm=True,
            changes=True,
        )
        if refused is None and stored:
            self._committed.add(f"{self._group}-pops-{self._popped}")

    async def _query_ends(self) -> None:
        """Query the end of a queue, which it keeps while nobody can read it."""
        queue_id = self._rng.randrange(QUEUES_MAX)
        await self.drill.request(
            f"end of queue {queue_id} of {self._topic}: {self._settings}",
            RequestCode.GET_MAX_OFFSET,
            self._place(queue_id),
            expected=f"0 {len(self._stored.get(queue_id, []))}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('offset')}",
        )

    async def _lock(self, settings: _Settings) -> None:
        """Lock all queues that ever were; those that can be read are there."""
        client = f"{self._group}@{self._rng.getrandbits(30)}"
        named = [
            {"topic": self._topic, "brokerName": self.drill.queue.broker_name, "queueId": queue}
            for queue in range(QUEUES_MAX)
        ]
        body = {
            "consumerGroup": f"{self._group}-locks",
            "clientId": client,
            "mqSet": named,
        }
        await self.drill.request(
            f"lock {QUEUES_MAX} queues of {self._topic}: {settings}",
            RequestCode.LOCK_BATCH_MQ,
            {},
            body=json.dumps(body).encode(),
            expected=f"0 {list(range(settings.read))}",
            show=show_locked,
            changes=True,
        )
        await self.drill.request(
            f"unlock them all for {client}",
            RequestCode.UNLOCK_BATCH_MQ,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )

    # Consumers ---------------------------------------------------------------------------------

    async def _query_consumers(self, settings: _Settings) -> None:
        """Have one group subscribe and another one commit, and query who consumes the topic, and
        what each group consumes; then the first one leaves."""
        online, offline = f"{self._group}-online", f"{self._group}-offline"
        if settings.perm & _READ and self._rng.random() < 0.7:
            group = self._rng.choice((online, offline, offline))
            await self._commit(group, self._rng.randrange(settings.read))
        await self._query_consuming_groups({*self._committed})
        await self._beat(online)
        node = self.drill.node
        await self._query_consuming_groups({*self._committed, online}, only_by=node)
        for group in (online, offline):
            await self._query_topics_of(group)
        await self.drill.request(
            f"the member of {online} leaves",
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": f"{online}@0", "consumerGroup": online},
            expected="0",
            changes=True,
        )
        await self._query_consuming_groups({*self._committed}, only_by=node)

    async def _commit(self, group: str, queue_id: int) -> None:
        await self.drill.request(
            f"commit of {group} in queue {queue_id} of {self._topic}",
            RequestCode.UPDATE_CONSUMER_OFFSET,
            self._place(queue_id, consumerGroup=group, commitOffset=0),
            expected="0",
            changes=True,
        )
        self._committed.add(group)

    async def _beat(self, group: str) -> None:
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": self._topic, "subString": "*"}],
        }
        body = {"clientID": f"{group}@0", "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.drill.request(
            f"heartbeat of {group}",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )

    async def _query_consuming_groups(
        self, groups: set[str], *, only_by: str | None = None
    ) -> None:
        await self.drill.request(
            f"who consumes {self._topic}",
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            {"topic": self._topic},
            expected=_list(groups),
            show=lambda answer: _shown_list(answer, "groupList"),
            is_calm=True,
            only_by=only_by,
        )

    async def _query_topics_of(self, group: str) -> None:
        topics = {self._topic} if group in self._committed else set()
        await self.drill.request(
            f"what {group} consumes",
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            {"group": group},
            expected=_list(topics),
            show=lambda answer: _shown_list(answer, "topicList"),
            is_calm=True,
        )


def _changed(body: bytes) -> bytes:
    """Return another body of the same length."""
    return body[:-1] + bytes([body[-1] ^ 1])


def _list(names: set[str]) -> str:
    return " ".join(["0", *sorted(names)])


def _shown_list(answer: RemotingCommand, field: str) -> str:
    if answer.code != 0:
        return str(answer.code)
    shown: Mapping[str, list[str]] = json.loads(answer.body or b"{}")
    return " ".join(["0", *sorted(shown.get(field) or ())])
