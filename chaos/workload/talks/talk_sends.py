"""Sends of every kind: single ones by both headers, batches, halves and their ends, messages that
wait, and those that are sent back.

Place in the data path: a speaker of `talk`. What a send has left is noted at the desk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from chaos.workload.talks.talk_desk import APART_S, BEHIND_S, KEYS, QUEUES, Desk, Sent
from remoting.protocol.codes import RequestCode as Code
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.message_id import parse_offset_msg_id
from remoting.records.property_names import PropertyName

__all__ = ["SendTalk"]

_TAGS: Final = ("A", "B", "C")
_COMMIT: Final = 8
_ROLLBACK: Final = 12


class SendTalk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kinds(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        """Return the questions, and how often each is sent."""
        return {
            self._send: 14,
            self._batch: 3,
            self._half: 3,
            self._end_half: 4,
            self._send_back: 4,
            self._recall: 1,
        }

    async def end_all(self) -> None:
        """Roll back what is left undecided."""
        for half in self._desk.known.halves:
            await self._desk.request(self._end_command(half, f"{self._desk.name}-p", _ROLLBACK))

    def _properties(self) -> dict[str, str]:
        rng = self._desk.rng
        properties: dict[str, str] = {}
        if rng.random() < 0.8:
            properties["TAGS"] = rng.choice(_TAGS)
        if rng.random() < 0.6:
            properties["KEYS"] = " ".join(rng.sample(KEYS, rng.randint(1, 2)))
        if rng.random() < 0.6:
            properties["n"] = str(rng.randrange(9))
        if rng.random() < 0.5:
            properties["c"] = rng.choice(KEYS)
        if rng.random() < 0.1:
            properties["WAIT"] = "true"
        if rng.random() < 0.06:
            properties["DELAY"] = rng.choice(("0", "17", "18", "-1"))
        return properties

    def _fields(self, topic: str, properties: Mapping[str, str]) -> dict[str, Any]:
        uniq_key = self._desk.uniq_key()
        text = "".join(
            f"{name}\x01{value}\x02"
            for name, value in {PropertyName.UNIQ_KEY: uniq_key, **properties}.items()
        )
        return {
            "producerGroup": f"{self._desk.name}-p",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": self._desk.odd(self._desk.rng.randrange(QUEUES), QUEUES, 99, share=0.03),
            "sysFlag": 0,
            "bornTimestamp": int(time.time() * 1000),
            "flag": self._desk.odd(0, 7),
            "properties": text,
            "reconsumeTimes": self._desk.odd(0, 1, 20, share=0.05),
            "unitMode": "false",
            "maxReconsumeTimes": None,
            "batch": "false",
        }

    async def _send_fields(
        self, about: str, fields: dict[str, Any], body: bytes, *, code: int | None = None
    ) -> RemotingCommand:
        long_names = self._desk.rng.random() < 0.3
        if code is None:
            code = Code.SEND_MESSAGE if long_names else Code.SEND_MESSAGE_V2
        if code != Code.SEND_MESSAGE:
            fields = dict(zip("abcdefghijklm", fields.values(), strict=True))
        await asyncio.sleep(APART_S)
        answer = await self._desk.step(about, code, fields, body)
        names = ("topic", "sysFlag") if code == Code.SEND_MESSAGE else ("b", "f")
        topic, flag = (fields[name] for name in names)
        shown = answer.ext_fields
        if answer.code == 0 and "queueOffset" in shown:
            try:
                position = parse_offset_msg_id(shown["msgId"].split(",")[0])[-1]
            except ValueError:
                position = 0
            sent = Sent(
                topic=str(topic),
                queue=int(shown["queueId"]),
                offset=int(shown["queueOffset"]),
                position=position,
                uniq_key=self._desk.key_of(self._desk.numbers),
                is_half=flag == 4,
            )
            self._desk.known.sent.append(sent)
            if sent.is_half:
                self._desk.known.halves.append(sent)
            if not sent.is_half and "DELAY" not in str(fields.values()):
                await self._desk.put_away(sent)
        return answer

    async def _send(self) -> None:
        fields = self._fields(self._desk.topic(), self._properties())
        if self._desk.rng.random() < 0.04:
            fields["topic"] = self._desk.rng.choice(
                (
                    "SCHEDULE_TOPIC_XXXX",
                    "no topic!",
                    "",
                )
            )
        body = self._desk.odd(b"body", b"", b"x" * 3_000) + str(self._desk.numbers).encode()
        about = "send later" if "DELAY" in fields["properties"] else "send"
        await self._send_fields(about, fields, body)

    async def _batch(self) -> None:
        fields = {**self._fields(self._desk.topic(), {}), "properties": "", "batch": "true"}
        items = []
        for _ in range(self._desk.rng.randint(1, 4)):
            uniq_key, own = self._desk.uniq_key(), self._properties()
            own.pop("DELAY", None)
            text = "".join(
                f"{k}\x01{v}\x02" for k, v in {PropertyName.UNIQ_KEY: uniq_key, **own}.items()
            )
            items.append(BatchItem(b"item" + uniq_key[-4:].encode(), text.encode()))
        body = encode_batch_body(items)
        await self._send_fields("send a batch", fields, body, code=Code.SEND_BATCH_MESSAGE)

    async def _half(self) -> None:
        properties = {
            **self._properties(),
            PropertyName.TRAN_MSG: "true",
            "PGROUP": f"{self._desk.name}-p",
        }
        properties.pop("DELAY", None)
        fields = self._fields(self._desk.topic(), properties)
        fields["sysFlag"] = 4
        await self._send_fields("send a half", fields, b"half")

    def _end_command(self, half: Sent, group: str, decision: int) -> RemotingCommand:
        fields = {
            "producerGroup": group,
            "tranStateTableOffset": half.offset,
            "commitLogOffset": half.position,
            "commitOrRollback": decision,
            "fromTransactionCheck": "false",
            "msgId": half.uniq_key,
            "transactionId": half.uniq_key,
        }
        texts = {name: str(value) for name, value in fields.items()}
        return RemotingCommand(code=int(Code.END_TRANSACTION), ext_fields=texts)

    async def _end_half(self) -> None:
        half = self._desk.one_of(self._desk.known.halves)
        group = self._desk.odd(f"{self._desk.name}-p", "others", share=0.1)
        decision = self._desk.rng.choice((_COMMIT, _COMMIT, _ROLLBACK))
        if half is None:
            return
        if group != "others":
            self._desk.known.halves.remove(half)
        command = self._end_command(half, group, decision)
        answer = await self._desk.request(command)
        self._desk.add("end a half", command, answer)
        if decision == _COMMIT:
            await asyncio.sleep(BEHIND_S)

    async def _recall(self) -> None:
        fields = self._fields(self._desk.topic(), {PropertyName.TIMER_DELAY_SEC: "3600"})
        answer = await self._send_fields("send a timer", fields, b"later")
        handle = self._desk.odd(answer.ext_fields.get("recallHandle", "none"), "none", share=0.1)
        recall = {"producerGroup": fields["producerGroup"], "topic": fields["topic"]}
        recall |= {"recallHandle": handle}
        await self._desk.step("recall", Code.RECALL_MESSAGE, recall)

    async def _send_back(self) -> None:
        known = self._desk.one_of([one for one in self._desk.known.sent if not one.is_half])
        fields: dict[str, Any] = {
            "group": self._desk.group(),
            "delayLevel": self._desk.odd(18, -1, 17),
            "unitMode": "false",
            "maxReconsumeTimes": self._desk.odd(16, 0),
        }
        if known is None:
            return
        fields |= {
            "offset": known.position,
            "originTopic": known.topic,
            "originMsgId": known.uniq_key,
        }
        await self._desk.step("send back", Code.CONSUMER_SEND_MSG_BACK, fields)
