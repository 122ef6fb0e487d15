"""A member that polls, whose application is busy elsewhere, or at work on what it has polled, for
far longer than a listener may take: nothing has failed.

Place in the data path: `client.consume.lite_pull_consumer`, alone in its group, with a time limit
of listener calls that would end soon.

Invariants: all messages come, once, in their order and for the first time; the group's offset moves
behind what was polled alone; nothing is sent back, so that the group's retries stay empty.

Source: RocketMQ DefaultLitePullConsumer, which has no such limit; docs/CLIENT.md (lite pull).
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.group_topics import retry_topic

__all__ = ["IdleApplication"]

MESSAGES: Final = 6
BATCH_MAX: Final = 2
LIMIT_MS: Final = 200
IDLE_S: Final = 1.0
GIVEN_S: Final = 5.0
LATE_S: Final = 1.5  # by when what was sent back at level 1 would be there again
COMMIT_MS: Final = 150
_NO_TOPIC: Final = 17


class IdleApplication:
    """One queue that is filled before, and its member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._group = f"{bench.name}-members"

    async def run(self) -> None:
        """Be idle, poll, be at work, poll on. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        tool = bench.tool(self._group)
        async with bench.producer() as producer, tool:
            messages = [bench.message() for _ in range(MESSAGES)]
            for message in messages:
                await producer.send(message)
            member = bench.poller(
                self._group,
                lite={"poll_batch_max": BATCH_MAX},
                consume_timeout_ms=LIMIT_MS,
                commit_interval_ms=COMMIT_MS,
                retry_delay_level=1,
                suspend_ms=500,
            )
            member.subscribe(bench.topic)
            polled: list[DeliveredMessage] = []
            async with member:
                await bench.becomes(
                    "queues of a member whose application is idle",
                    lambda: queue in member.queues,
                    expected=True,
                    within_s=GIVEN_S,
                )
                await asyncio.sleep(IDLE_S)
                bench.hold(
                    "offset of a group whose only application has polled nothing",
                    expected=0,
                    answered=await tool.fetch_offset(queue) or 0,
                    is_calm=False,
                )
                loop = asyncio.get_running_loop()
                end_s = loop.time() + GIVEN_S * bench.patience
                while len(polled) < MESSAGES and loop.time() < end_s:
                    some = await poll_whole(member, 1_000)
                    polled += some
                    if some:
                        await asyncio.sleep(IDLE_S)
                await asyncio.sleep(LATE_S)
                polled += await poll_whole(member, 500)
        bench.hold(
            "what an application polls that takes its time",
            expected=[(message.body, 0) for message in messages],
            answered=[(message.body, message.reconsume_times) for message in polled],
        )
        bench.hold(
            "retries of a group whose application takes its time",
            expected=0,
            answered=await self._retries(queue),
            is_calm=False,
        )

    async def _retries(self, queue: MessageQueue) -> int | None:
        """Return how many there are; None where that is not known. Raises ClientError."""
        fields = {
            "topic": retry_topic(self._group),
            "queueId": "0",
            "bname": queue.broker_name,
        }
        answer = await self._bench.request(RequestCode.GET_MAX_OFFSET, fields)
        if answer.code == _NO_TOPIC:
            return 0
        return int(answer.ext_fields.get("offset", 0))
