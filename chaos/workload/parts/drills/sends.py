"""Drills of sends as other clients make them: raw requests in all their forms, into topics that
they make by themselves.

Place in the data path: `drills` makes one with each new topic; SEND_MESSAGE, SEND_MESSAGE_V2 and
SEND_BATCH_MESSAGE, of which the first makes the topic after its default's model; what stands there
then is read back with all that a record says of itself.

Invariants: a send is an operation of the history like any other, attempted once; what the model
knows of a queue is what was acknowledged; batches that may not be stored change nothing.

Source: RocketMQ SendMessageProcessor, SendMessageRequestHeader, TopicConfigManager
.createTopicInSendMessageMethod, MessageDecoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE, MessageMaker, wall_ms
from chaos.workload.parts.common.drill import Drill, Unsure
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.common.shown_answers import records_of
from client.connection.send_codec import PreparedSend, prepare_batch, prepare_message
from client.message import Message, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import MessageRecord
from remoting.records.property_names import DELAYING, PropertyName

__all__ = ["LONG_NAMES", "SendDrill"]

DEFAULT_QUEUES: Final = 8  # of the topic that is the model
WANTED: Final = (1, 2, 3, 8, 20)
ROUNDS: Final = 5
BATCH_MAX: Final = 4
NAMELESS_SHARE: Final = 0.2
_PRODUCERS: Final = "drills-raw-producers"
_ILLEGAL: Final = "13"
_BAD_PARAMETER: Final = "29"
_WITH_SUBSCRIPTION: Final = 4
_UNIT: Final = 1
LONG_NAMES: Final[Mapping[str, str]] = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "brokerName",
}


class SendDrill:
    """One topic, made by the first send, and read back at the end."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._topic = f"drills-sent-{group}"
        rng = drill.rng
        self._wanted = rng.choice(WANTED)
        self._queues = min(self._wanted, DEFAULT_QUEUES)
        self._is_unit = rng.random() < 0.3
        self._stored: dict[int, list[str]] = {number: [] for number in range(self._queues)}
        self._maker = MessageMaker(prefix=f"{group}.raw", body_bytes=100, rng=rng)
        self._sent = 0
        self._places: dict[str, str] = {}  # by UNIQ_KEY

    async def run(self) -> None:
        """Make the topic, send into it in all forms, and read it. Raises Unsure, EndedError."""
        rng = self.drill.rng
        await self._send_one(0)
        await self._query_topic()
        for _ in range(ROUNDS):
            draw = rng.random()
            if draw < 0.45:
                await self._send_one(rng.choice((-1, rng.randrange(self._queues))))
            elif draw < 0.7:
                await self._send_batch(rng.randrange(self._queues))
            else:
                await self._be_refused()
        for number in range(self._queues):
            await self._read(number)
        for key in rng.sample(sorted(self._places), min(2, len(self._places))):
            await self.drill.find(self._topic, key, [self._places[key]])
        raise Unsure  # the next one makes a topic of its own

    # Sends -------------------------------------------------------------------------------------

    def _make(self) -> Message:
        self._sent += 1
        uniq_key = f"{self._group}-raw-{self._sent}"
        message = self._maker.make(self._topic, uniq_key=uniq_key)
        message.born_timestamp_ms = wall_ms() - self.drill.rng.randint(0, 5_000)
        return message

    def _command(self, prepared: PreparedSend, queue_id: int) -> RemotingCommand:
        queue = MessageQueue(self._topic, self.drill.queue.broker_name, queue_id)
        command = prepared.command(queue)
        fields = {
            **command.ext_fields,
            "c": DEFAULT_TOPIC,
            "d": str(self._wanted),
            "k": str(self._is_unit).lower(),
        }
        if command.code == RequestCode.SEND_MESSAGE_V2 and self.drill.rng.random() < 0.5:
            named = {LONG_NAMES[name]: value for name, value in fields.items()}
            return RemotingCommand(
                code=RequestCode.SEND_MESSAGE, ext_fields=named, body=command.body
            )
        return RemotingCommand(code=command.code, ext_fields=fields, body=command.body)

    async def _send_one(self, queue_id: int) -> None:
        """Send one message; to the queue -1, which the broker chooses."""
        message = self._make()
        prepared = prepare_message(message, group=_PRODUCERS, compression=None)
        if self.drill.rng.random() < NAMELESS_SHARE:
            own = f"{PropertyName.UNIQ_KEY}\x01"
            texts = prepared.fields["i"].split("\x02")
            prepared.fields["i"] = "\x02".join(text for text in texts if not text.startswith(own))
            message.uniq_key = None  # the broker makes one
        await self._send([message], prepared, queue_id)

    async def _send_batch(self, queue_id: int) -> None:
        messages = [self._make() for _ in range(self.drill.rng.randint(1, BATCH_MAX))]
        for message in messages:  # the request has one for all of them
            message.born_timestamp_ms = messages[0].born_timestamp_ms
        await self._send(messages, prepare_batch(messages, group=_PRODUCERS), queue_id)

    async def _send(
        self, messages: Sequence[Message], prepared: PreparedSend, queue_id: int
    ) -> None:
        command = self._command(prepared, queue_id)
        answer = await self.drill.send(messages, command, queue_id=queue_id)
        fields = answer.ext_fields
        shown = fields.get("queueId", "")
        number = int(shown) if shown.isdecimal() else -1
        stored = self._stored.get(number)
        if stored is None or (queue_id not in (-1, number)):
            self.drill.record(
                f"queue of a send to {queue_id} of {self._topic}",
                expected=f"below {self._queues}" if queue_id < 0 else str(queue_id),
                answered=shown,
            )
            raise Unsure
        ids = fields.get("msgId", "").split(",")
        self.drill.record(
            f"answer to a send of {len(messages)} to queue {queue_id} of {self._topic}",
            expected=f"0 at {len(stored)}, {len(messages)} ids, traced true, DefaultRegion",
            answered=f"{answer.code} at {fields.get('queueOffset')}, {len(set(ids))} ids, "
            f"traced {fields.get('TRACE_ON')}, {fields.get('MSG_REGION')}",
        )
        for message, offset_msg_id in zip(messages, ids, strict=True):
            if message.uniq_key is not None:
                place = f"{len(stored)}:{message.properties[PROPERTY_VALUE]}"
                self._places[message.uniq_key] = place
            stored.append(_expected(message, len(stored), number, offset_msg_id))

    async def _be_refused(self) -> None:
        """Send a batch that may not be stored, or to a queue that is not there."""
        messages = [self._make(), self._make()]
        queue_id, expected = self.drill.rng.randrange(self._queues), _ILLEGAL
        not_taken: str = PropertyName.TRAN_MSG
        match self.drill.rng.randrange(4):
            case 0:
                what, queue_id, expected = "to no queue", self._queues, _BAD_PARAMETER
            case 1:
                what = "with one key twice"
                messages[1].uniq_key = messages[0].uniq_key
            case 2:
                what = "with a delay"
                not_taken = self.drill.rng.choice(DELAYING)
                messages[1].properties = {**messages[1].properties, not_taken.lower(): "3"}
            case _:
                what = "with a half"
                messages[0].properties = {**messages[0].properties, not_taken.lower(): "true"}
        prepared = prepare_batch(messages, group=_PRODUCERS)
        # Clients take no such batch: the property has another name of that length until here.
        body = prepared.body.replace(f"{not_taken.lower()}\1".encode(), f"{not_taken}\1".encode())
        command = self._command(prepared, queue_id)
        await self.drill.request(
            f"send a batch {what} to {self._topic}",
            RequestCode(command.code),
            command.ext_fields,
            body=body,
            expected=expected,
        )

    # Questions ---------------------------------------------------------------------------------

    async def _query_topic(self) -> None:
        await self.drill.request(
            f"topic made by a send that wanted {self._wanted} queues, unit {self._is_unit}",
            RequestCode.GET_TOPIC_CONFIG,
            {"topic": self._topic},
            expected=f"0 read {self._queues} write {self._queues} perm 6 order False"
            f" flag {_UNIT if self._is_unit else 0}",
            show=_show_topic,
            is_calm=True,
        )

    async def _read(self, number: int) -> None:
        stored = self._stored[number]
        await self.drill.request(
            f"pull of queue {number} of {self._topic}",
            RequestCode.PULL_MESSAGE,
            {
                "topic": self._topic,
                "queueId": number,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": self._group,
                "queueOffset": 0,
                "maxMsgNums": 100,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
            },
            expected=f"0 {'; '.join(stored)}" if stored else "19 ",
            show=lambda answer: f"{answer.code} {'; '.join(map(_shown, records_of(answer)))}",
            is_calm=True,
        )


def _expected(message: Message, offset: int, queue_id: int, offset_msg_id: str) -> str:
    value = message.properties[PROPERTY_VALUE]
    return (
        f"{offset}:{value} in {message.topic}-{queue_id} at {int(offset_msg_id[-16:], 16)}"
        f" born {message.born_timestamp_ms} flag {message.flag} tried 0 tag {message.tags}"
        f" keys {' '.join(message.keys) or None} key {message.uniq_key or 'made by the broker'}"
        f" body {len(message.body)}"
    )


def _shown(record: MessageRecord) -> str:
    properties = record.property_map()
    key = properties.get(PropertyName.UNIQ_KEY)
    if key and "-raw-" not in key:
        key = "made by the broker"
    return (
        f"{record.queue_offset}:{properties.get(PROPERTY_VALUE)} in {record.topic}"
        f"-{record.queue_id} at {record.physical_offset}"
        f" born {record.born_timestamp_ms} flag {record.flag} tried {record.reconsume_times}"
        f" tag {properties.get(PropertyName.TAGS)} keys {properties.get(PropertyName.KEYS)}"
        f" key {key} body {len(record.body)}"
    )


def _show_topic(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    config = json.loads(answer.body)
    return (
        f"0 read {config.get('readQueueNums')} write {config.get('writeQueueNums')}"
        f" perm {config.get('perm')} order {config.get('order')}"
        f" flag {config.get('topicSysFlag')}"
    )
