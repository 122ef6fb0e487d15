"""Names that are used again: of a topic that is deleted while a message is on its way to it, or
waits for it, and of a group that is deleted before it has followed a reset.

Place in the data path: `broker.admin` and `broker.state`, in a topic of the drill's own. A message
is sent right behind the deletion of its topic, over one connection; a group whose offsets were
reset is deleted, and commits and pulls under its name again.

Invariants: what was answered as stored is there, in the topic that has the name then; what waited
for a topic goes with it, whichever life of its name that was; a group that is made anew has what it
commits, and is sent back to no reset of the one before.

Source: RocketMQ AdminBrokerProcessor.deleteTopic and deleteSubscriptionGroup,
ConsumerOffsetManager.resetOffsetTable; decision 15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from chaos.workload.messages import wall_ms
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.leader_requests import (
    DEFAULT_TOPIC,
    create_topic_command,
    delete_topic_command,
    pipeline_requests,
)
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.properties import properties_text
from remoting.records.property_names import PropertyName

__all__ = ["NamesUsedAgain"]

ROUNDS: Final = 3
MESSAGES: Final = 6
DELAY_S: Final = 1.0  # of RocketMQ's first level
COMES_S: Final = 1.5  # by when what has waited comes
AGAIN_S: Final = 30.0
"""Within which a leader is there that makes a topic: a run's topics are there at its end."""


class NamesUsedAgain:
    """One topic that stays, in which groups consume, and one that goes and comes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._gone = MessageQueue(f"{bench.topic}-gone", bench.broker_group, 0)

    async def run(self) -> None:
        """Use the topic's name again, and a group's. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        try:
            for _ in range(ROUNDS):
                await self._make_topic()
                await self._send_behind_deletion()
            for life in range(ROUNDS):
                await self._delete_what_waits(life)
        finally:
            await self._make_topic()
        async with bench.producer() as producer:
            for _ in range(MESSAGES):
                await producer.send(bench.message())
        for cleans in (False, True):
            await self._reset_and_delete(queue, cleans=cleans)

    # A topic ---------------------------------------------------------------------------------

    async def _make_topic(self) -> None:
        """Make the topic that is deleted. Raises ClientError."""
        bench, loop = self._bench, asyncio.get_running_loop()
        end_s = loop.time() + AGAIN_S
        command = create_topic_command(self._gone.topic, queues=1, perm=6)
        while True:
            try:
                answer = await bench.request(RequestCode(command.code), command.ext_fields)
            except ClientError:
                if loop.time() >= end_s:
                    raise
            else:
                if answer.code == ResponseCode.SUCCESS or loop.time() >= end_s:
                    return
            await bench.pause()

    async def _send_behind_deletion(self) -> None:
        """Delete the topic and send to it, neither waiting for the other's answer; hold that a
        message that was answered as stored can be read. Raises ClientError."""
        bench = self._bench
        body = bench.message().body
        try:
            answers, _ = await pipeline_requests(
                bench.admin.instance,
                bench.broker_group,
                [delete_topic_command(self._gone.topic), self._send_command(body)],
                timeout_ms=bench.timeout_ms,
            )
        except ClientError:
            return  # of either nobody knows whether it was carried out
        deleted, sent = answers
        if deleted.code != ResponseCode.SUCCESS or sent.code != ResponseCode.SUCCESS:
            return
        offset = int(sent.ext_fields["queueOffset"])
        await self._make_topic()
        pulled = await bench.reader.pull(self._gone, offset)
        bench.hold(
            "what stands where a send was stored right behind the deletion of its topic",
            expected=[body],
            answered=[each.body for each in pulled.messages],
        )

    async def _delete_what_waits(self, life: int) -> None:
        """Delete the topic while a delayed message waits for it; hold that it does not come into
        the next topic of that name. Raises ClientError."""
        bench = self._bench
        await self._make_topic()
        message = bench.message()
        command = self._send_command(message.body, {PropertyName.DELAY: "1"})
        sent = await bench.request_verbatim(command)
        gone = await bench.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": self._gone.topic})
        if sent.code != ResponseCode.SUCCESS or gone.code != ResponseCode.SUCCESS:
            return
        await self._make_topic()
        offset = await bench.reader.min_offset(self._gone)
        await asyncio.sleep(DELAY_S + COMES_S)
        pulled = await bench.reader.pull(self._gone, offset)
        bench.hold(
            f"what comes into a topic of what waited for life {life} of its name",
            expected=[],
            answered=[each.body for each in pulled.messages if each.body == message.body],
            is_calm=False,
        )

    def _send_command(
        self, body: bytes, properties: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        queue = self._gone
        fields = {
            "a": f"{self._bench.name}-producers",
            "b": queue.topic,
            "c": DEFAULT_TOPIC,
            "d": "1",
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(wall_ms()),
            "h": "0",
            "i": properties_text(properties or {}),
            "j": "0",
            "k": "false",
            "n": queue.broker_name,
        }
        return RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)

    # A group -----------------------------------------------------------------------------------

    async def _reset_and_delete(self, queue: MessageQueue, *, cleans: bool) -> None:
        """Reset a group to the begin, delete it before it has pulled, and use its name again.
        Raises ClientError."""
        bench, how = self._bench, "with its offsets" if cleans else "without its offsets"
        group = f"{bench.name}-{how.replace(' ', '-')}"
        async with bench.tool(group) as tool:
            await tool.commit_offset(queue, MESSAGES // 2)
            await bench.admin.reset_queue(group, queue, offset=0)
            await bench.admin.delete_group(group, clean_offsets=cleans)
            await bench.admin.create_group(group)
            await tool.commit_offset(queue, MESSAGES - 1)
            bench.hold(
                f"offset that a group has committed whose name was deleted {how} after a reset",
                expected=MESSAGES - 1,
                answered=await tool.fetch_offset(queue),
            )
            pulled = await tool.pull(queue, MESSAGES - 1)
            bench.hold(
                f"where a group goes on whose name was deleted {how} after a reset",
                expected=MESSAGES,
                answered=pulled.next_begin_offset,
            )
