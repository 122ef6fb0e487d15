"""A broker whose messages are popped, and what Java's client makes of the answers."""

from __future__ import annotations

from broker.entry.payload import UNIT
from broker.pop.revive import PopRevive
from broker.process.processors import Processors
from campaigns.rig.waiting import turns, until
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import MessageRecord, decode_record, decode_records
from tests.broker.rig import Rig, send_fields

POP = RequestCode.POP_MESSAGE


class PopRig(Rig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.processors = self.make(Processors, self.tasks)
        self.revive = self.make(PopRevive)

    def _on_arrival(self, run) -> None:
        super()._on_arrival(run)
        self.context.pop_polling.on_arrival(run)

    async def send(self, *bodies: bytes, queue: int = 0, **properties: str) -> None:
        for body in bodies:
            fields = send_fields(key=body.decode(), queue=queue, **properties)
            answer = await self.ask(self.processors.send.handle, 310, fields, body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def fields(self, **more: str) -> dict[str, str]:
        return {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "-1",
            "maxMsgNums": "32",
            "invisibleTime": "10000",
            "pollTime": "0",
            "bornTime": "0",
            "initMode": "0",
            "order": "false",
            **more,
        }

    async def pop(self, **more: str):
        return await self.ask(self.processors.pop.handle, POP, self.fields(**more))

    async def ack(self, message: MessageRecord, handle: str, topic: str = "T") -> int:
        answer = await self.ask(
            self.processors.pop_ack.ack,
            RequestCode.ACK_MESSAGE,
            self.ack_fields(message, handle, topic),
        )
        return answer.code

    def ack_fields(self, message: MessageRecord, handle: str, topic: str) -> dict[str, str]:
        return {
            "consumerGroup": "G",
            "topic": topic,
            "queueId": str(message.queue_id),
            "offset": str(message.queue_offset),
            "extraInfo": handle,
        }

    async def change(
        self, message: MessageRecord, handle: str, invisible_ms: int, topic: str = "T"
    ):
        fields = self.ack_fields(message, handle, topic) | {"invisibleTime": str(invisible_ms)}
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        return await self.ask(self.processors.pop_ack.change, code, fields)

    async def let_revive(self) -> None:
        await turns(5)
        before = len(self.log.entries)
        self.revive.round()
        await until(lambda: len(self.log.entries) != before)

    def stored(self, topic: str) -> list[MessageRecord]:
        units = UNIT.iter_unpack(self.queues.get(topic, 0).read(0, 1_000))
        return [decode_record(self.log.read(position, size)) for position, size, _ in units]


def messages(answer) -> list[tuple[MessageRecord, str]]:
    """What the Java client makes of an answer: each message and its handle."""
    fields = answer.ext_fields
    if answer.code != ResponseCode.SUCCESS:
        return []
    starts = {
        (flag, queue): int(start)
        for flag, queue, start in (part.split(" ") for part in fields["startOffsetInfo"].split(";"))
    }
    offsets = {
        (flag, queue): list(map(int, known.split(",")))
        for flag, queue, known in (part.split(" ") for part in fields["msgOffsetInfo"].split(";"))
    }
    found = []
    for record in decode_records(answer.body):
        handle = record.property_map().get("POP_CK")
        if handle is None:
            place = ("0", str(record.queue_id))
            assert record.queue_offset in offsets[place]
            handle = (
                f"{starts[place]} {fields['popTime']} {fields['invisibleTime']} "
                f"{fields['reviveQid']} 0 broker-a {record.queue_id} {record.queue_offset}"
            )
        found.append((record, handle))
    return found
