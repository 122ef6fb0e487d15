"""Drills of what a subscription group's settings do: who may pull, pop and broadcast, in how many
queues it is retried, and after how many tries a message is a dead letter, sent back or popped.

Place in the data path: `drills` makes one with each new group, whose settings change meanwhile; it
reads what a runner of `drills` has sent. Requests go through `drill.Drill`. What is to be in a
group's retries and dead letters is known beforehand: which message, after how many tries.

Source: RocketMQ SubscriptionGroupConfig, AbstractSendMessageProcessor.consumerSendMsgBack,
PullMessageProcessor, PopMessageProcessor; docs/CLIENT.md of pops: dead letters after retryMaxTimes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Stored, Unsure
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.brought import brought, brought_by
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import DLQ_PREFIX, RETRY_PREFIX

__all__ = ["SettingsDrill"]

RETRIES_MAX: Final = (-1, 0, 0, 1, 2)  # -1 stands for 16
RETRIES_DEFAULT: Final = 16
TRIES_MAX: Final = 3  # for which one message is followed
LEVELS: Final = (1, 1, 1, 2, 0)
LEVELS_S: Final = {1: 1.0, 2: 5.0, 3: 10.0, 4: 30.0, 5: 60.0}  # RocketMQ's, by level
FIRST_LEVEL: Final = 3  # of level 0
INVISIBLE_MS: Final = 500
WITHIN_S: Final = 3.0  # what is due in a second or less has come by then, whoever leads
LATE_S: Final = 2.0  # what is due has come by then
PULLED_MAX: Final = 32
_REFUSED: Final = "16"
_NO_TOPIC: Final = "17"
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The settings of a group that have an effect here."""

    consumes: bool
    broadcasts: bool
    retry_queues: int
    retries_max: int

    @property
    def limit(self) -> int:
        """Return after how many retries a message is a dead letter."""
        return RETRIES_DEFAULT if self.retries_max < 0 else self.retries_max


class SettingsDrill:
    """One group. Times are so short that what is due comes within two seconds."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._rng = drill.rng
        self._settings = _Settings(consumes=True, broadcasts=True, retry_queues=1, retries_max=16)
        self._dead: list[str] = []
        self._retried: list[str] = []
        self._queues_made = 0  # of the group's retry topic; 0: there is none
        self._pops_at: int | None = 0  # where the next pop begins; None: nobody knows

    async def run(self) -> None:
        """Configure, do what the settings are about, and configure anew. Raises Unsure,
        EndedError."""
        for _ in range(2):
            await self._configure()
            await self._pull()
            steps = [
                self._pull,
                self._broadcast,
                self._send_back,
                self._send_retry,
                self._pop_and_leave,
            ]
            self._rng.shuffle(steps)
            for step in steps:
                await step()
        raise Unsure  # another group has not begun yet

    async def _configure(self) -> None:
        rng = self._rng
        self._settings = settings = _Settings(
            consumes=rng.random() < 0.7,
            broadcasts=rng.random() < 0.5,
            retry_queues=rng.choice((0, 1, 1, 2, 3)),
            retries_max=rng.choice(RETRIES_MAX),
        )
        config = {
            "groupName": self._group,
            "consumeEnable": settings.consumes,
            "consumeBroadcastEnable": settings.broadcasts,
            "retryQueueNums": settings.retry_queues,
            "retryMaxTimes": settings.retries_max,
        }
        await self.drill.request(
            f"configure {config}",
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            body=json.dumps(config).encode(),
            expected="0",
            changes=True,
        )

    # Who may consume -----------------------------------------------------------------------------

    async def _pull(self, *, only_by: str | None = None, carries: bool = True) -> None:
        one = self._rng.choice(self.drill.stored)
        may = self._settings.consumes and (carries or self._settings.broadcasts)
        fields = self.drill.place(
            consumerGroup=self._group,
            queueOffset=one.offset,
            maxMsgNums=1,
            sysFlag=_WITH_SUBSCRIPTION if carries else 0,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            expressionType="TAG",
        )
        await self.drill.request(
            f"pull from {one.offset} of {self._group}{'' if carries else ', which broadcasts'}",
            RequestCode.PULL_MESSAGE,
            fields | ({"subscription": "*"} if carries else {}),
            expected=f"0 {one.value}" if may else _REFUSED,
            show=_show_values,
            is_calm=True,
            only_by=only_by,
        )

    async def _broadcast(self) -> None:
        """Pull as the only member, which broadcasts, and leave."""
        client = f"{self._group}@broadcasting"
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "BROADCASTING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": self.drill.queue.topic, "subString": "*"}],
        }
        body = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.drill.request(
            f"heartbeat of {client}",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )
        await self._pull(only_by=self.drill.node, carries=False)
        await self.drill.request(
            f"{client} leaves",
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": client, "consumerGroup": self._group},
            expected="0",
            changes=True,
        )

    # What is sent back ---------------------------------------------------------------------------

    async def _send_back(self) -> None:
        """Send one message back, again and again, until it is a dead letter or that takes long."""
        one = self._rng.choice(self.drill.stored)
        position = int(one.offset_msg_id[-16:], 16)
        own = self._rng.choice((None, None, 0, 1))  # a limit that the request brings itself
        limit = self._settings.limit if own is None else own
        for tries in range(1, TRIES_MAX + 1):
            level = self._rng.choice(LEVELS)
            await self._request_send_back(one, position, own, level)
            if not self._settings.retry_queues:
                await self._hold_nothing_new()
                return
            if tries > limit:
                await self._hold_dead(one, tries, is_sent_back=True)
                return
            # The first tries of level 0 wait for as long as level 3 says, and so on.
            wait_s = LEVELS_S[level or FIRST_LEVEL + tries - 1]
            position = await self._hold_retried(one, tries, wait_s, is_sent_back=True)

    async def _send_retry(self) -> None:
        """Send a message to the retries, as a consumer does that can't send it back: there, or
        among the dead letters, it stands at once."""
        if not self._queues_made:
            return
        one = self._rng.choice(self.drill.stored)
        tries = self._rng.randint(0, TRIES_MAX)
        own = self._rng.choice((None, None, 0, 1))
        fields = dict(one.command.ext_fields) | {
            "a": f"{self._group}-producer",
            "b": f"{RETRY_PREFIX}{self._group}",
            "e": "0",
            "j": str(tries),
        }
        if own is not None:
            fields["l"] = str(own)
        await self.drill.request(
            f"send {one.value}, tried {tries} times, to the retries of {self._group}, limit {own}",
            RequestCode(one.command.code),
            fields,
            body=one.command.body,
            expected="0",
            changes=True,
        )
        if tries > (self._settings.limit if own is None else own):
            await self._hold_dead(one, tries)
        else:
            await self._hold_retried(one, tries, 0.0)

    async def _request_send_back(
        self, one: Stored, position: int, own: int | None, level: int
    ) -> None:
        fields: dict[str, object] = {
            "offset": position,
            "group": self._group,
            "delayLevel": level,
            "originTopic": self.drill.queue.topic,
            "unitMode": "false",
            "bname": self.drill.queue.broker_name,
        }
        await self.drill.request(
            f"send back {one.value}, which stands at {position}, of {self._group}, level {level},"
            f" limit {own}",
            RequestCode.CONSUMER_SEND_MSG_BACK,
            fields | ({} if own is None else {"maxReconsumeTimes": own}),
            expected="0",
            changes=True,
        )

    async def _hold_retried(
        self, one: Stored, tries: int, wait_s: float, *, is_sent_back: bool = False
    ) -> int:
        """Hold that the retries have the message in `wait_s`, and not before; return its
        position."""
        self._queues_made = self._queues_made or self._settings.retry_queues
        if wait_s > WITHIN_S:
            await self._wait(wait_s - WITHIN_S)
            await self._read_retries()
        self._retried.append(_expected(one, tries, is_sent_back=is_sent_back))
        await self._wait(min(wait_s, WITHIN_S) + LATE_S)
        return max(await self._read_retries())  # what was stored last

    async def _read_retries(self) -> Sequence[int]:
        """Hold what stands in the retries, in all queues together; return the positions."""
        found: dict[int, str] = {}  # by position
        for queue in range(self._queues_made):
            answer = await self._read(f"{RETRY_PREFIX}{self._group}", queue, None)
            if answer is None:
                raise Unsure
            found |= {
                record.physical_offset: _described(record.property_map(), record.reconsume_times)
                for record in records_of(answer)
            }
        await self.drill.wait_for(
            f"retries of {self._group}, in {self._queues_made} queues",
            lambda: ", ".join(sorted(found.values())),
            expected=", ".join(sorted(self._retried)),
            within_s=0,
        )
        await self._read(f"{RETRY_PREFIX}{self._group}", self._queues_made, "29")
        return list(found)

    async def _hold_dead(self, one: Stored, tries: int, *, is_sent_back: bool = False) -> None:
        self._dead.append(_expected(one, tries, is_sent_back=is_sent_back))
        await self._read_dead()
        places = enumerate(each.partition(" ")[0] for each in self._dead)
        own = [f"{offset}:{value}" for offset, value in places if value == one.value]
        await self.drill.find(f"{DLQ_PREFIX}{self._group}", one.uniq_key, own)

    async def _hold_nothing_new(self) -> None:
        await self._read_dead()
        if not self._queues_made:
            await self._read(f"{RETRY_PREFIX}{self._group}", 0, _NO_TOPIC)

    async def _read_dead(self) -> None:
        topic = f"{DLQ_PREFIX}{self._group}"
        if len(self._dead) > PULLED_MAX:
            raise Unsure
        await self._read(topic, 0, ", ".join(["0", *self._dead]) if self._dead else _NO_TOPIC)

    # What is popped ------------------------------------------------------------------------------

    async def _pop_and_leave(self) -> None:
        """Pop one message and never acknowledge it, until it is a dead letter or that takes
        long."""
        if not self._settings.consumes:
            await self._pop("*", _REFUSED)
            return
        at = self._pops_at
        if at is None or at >= self.drill.end:
            return
        one = self.drill.stored[at]
        await self._pop("*", f"0, {_expected(one, 0)}")
        self._pops_at = at + 1
        for tries in range(1, TRIES_MAX + 1):
            await self._wait(WITHIN_S)
            if tries > self._settings.limit:
                await self._hold_dead(one, tries)
                return
            await self._read_dead()
            # By a tag that no message has: retries come all the same, and nothing else.
            await self._pop("none", f"0, {_expected(one, tries)}")
            self._pops_at = None  # the queue's end, which moves
        raise Unsure  # it comes again in the middle of something else

    async def _pop(self, tag: str, expected: str) -> None:
        await self.drill.request(
            f"pop of {self._group} with {tag}",
            RequestCode.POP_MESSAGE,
            self.drill.place(
                consumerGroup=self._group,
                maxMsgNums=1,
                invisibleTime=INVISIBLE_MS,
                pollTime=0,
                bornTime=0,
                initMode=0,
                order="false",
                expType="TAG",
                exp=tag,
            ),
            expected=expected,
            show=_show_described,
            changes=True,
            is_calm=True,
        )

    # Reading -------------------------------------------------------------------------------------

    async def _read(self, topic: str, queue: int, expected: str | None) -> RemotingCommand | None:
        """Pull what stands in a topic of the group, as another group; without `expected` the
        caller judges."""

        def show(answer: RemotingCommand) -> str:
            if expected is None and answer.code in {0, 19}:
                return "0"
            return _show_described(answer)

        return await self.drill.request(
            f"pull of {topic}, queue {queue}",
            RequestCode.PULL_MESSAGE,
            {
                "topic": topic,
                "queueId": queue,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": f"{self._group}-reader",
                "queueOffset": 0,
                "maxMsgNums": PULLED_MAX,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
            },
            expected=expected or "0",
            show=show,
            is_calm=True,
        )

    async def _wait(self, seconds: float) -> None:
        if await sleep_until_set(self.drill.ends, seconds):
            raise EndedError


def _described(properties: dict[str, str], tries: int) -> str:
    return f"{properties.get(PROPERTY_VALUE)} tried {tries} {brought(properties)}"


def _expected(one: Stored, tries: int, *, is_sent_back: bool = False) -> str:
    return f"{one.value} tried {tries} {brought_by(one, is_sent_back=is_sent_back)}"


def _show_described(answer: RemotingCommand) -> str:
    found = [
        _described(record.property_map(), record.reconsume_times) for record in records_of(answer)
    ]
    return ", ".join([str(answer.code), *found])


def _show_values(answer: RemotingCommand) -> str:
    values: Sequence[str] = [
        record.property_map().get(PROPERTY_VALUE, "?") for record in records_of(answer)
    ]
    return " ".join([str(answer.code), *values])
