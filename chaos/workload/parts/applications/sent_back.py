"""Failed messages whose way back goes unanswered: each has one retry, not two.

Place in the data path: `client.consume.send_back`. A member's listener refuses a message while what
brokers send to the drill's clients is lost; the broker carries CONSUMER_SEND_MSG_BACK out, and the
member learns nothing of it until its time is over.

Invariants: the answer is lost for longer than the request's time, so that its outcome is unknown to
the member, which must not store a copy then; the member consumes the message again, from where it
has it or from the retry topic.

Source: docs/CLIENT.md (retries of a push consumer); RocketMQ MQClientAPIImpl
consumerSendMessageBack, whose caller stores a copy where the broker refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.group_topics import retry_topic

__all__ = ["UnansweredSendsBack"]

ROUNDS: Final = 3
REQUEST_MS: Final = 700
LOST_S: Final = 1.1
LEVEL: Final = 1  # one second
GIVEN_S: Final = 5.0
COPIES_S: Final = 2.5  # by when what was sent back at that level is in the retry topic
PAGE: Final = 32


class UnansweredSendsBack:
    """One queue, its producer, and a member that refuses each message once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._times: Counter[bytes] = Counter()
        self._unheard = contextlib.AsyncExitStack()
        self._sent = asyncio.Event()
        self._refused = asyncio.Event()
        self._member = bench.consumer(
            self._listen,
            retry_delay_level=LEVEL,
            timeout_ms=REQUEST_MS,
            retry=RetryPolicy(attempt_timeout_ms=REQUEST_MS),
        )
        self._member.subscribe(bench.topic)

    async def run(self) -> None:
        """Have messages refused, and look at their retries. Raises ClientError, LinksError."""
        bench = self._bench
        async with bench.unheard():
            pass  # links that can't be cut end the drill here, not in its listener
        await bench.make_topic(1)
        async with bench.producer() as producer, self._member:
            for _ in range(ROUNDS):
                message = bench.message()
                await producer.send(message)
                self._sent.set()
                await self._lose_answers()
                await bench.becomes(
                    "whether a message comes again that was sent back without an answer",
                    partial(self._has_come_again, message.body),
                    expected=True,
                    within_s=GIVEN_S,
                )
        await asyncio.sleep(COPIES_S * bench.patience)
        queue = MessageQueue(retry_topic(self._member.group), bench.broker_group, 0)
        copies = Counter(each.body for each in (await bench.reader.pull(queue, 0, PAGE)).messages)
        answered = [copies[body] for body in self._times]
        # On a real machine the request itself may be lost: the member has the message still, then.
        surely = [1] * ROUNDS if bench.patience == 1 else [min(1, count) for count in answered]
        bench.hold(
            "retries of messages that were sent back without an answer",
            expected=surely,
            answered=answered,
        )

    def _has_come_again(self, body: bytes) -> bool:
        return self._times[body] > 1

    async def _lose_answers(self) -> None:
        """Wait until the member has refused a message, and longer than it waits for an answer."""
        try:
            async with asyncio.timeout(GIVEN_S * self._bench.patience):
                await self._refused.wait()
                await asyncio.sleep(LOST_S)
        except TimeoutError:
            return  # the message has not come: what is expected says so
        finally:
            self._refused.clear()
            await self._unheard.aclose()

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        """Refuse what comes for the first time, and lose the answers that follow."""
        for message in messages:
            self._times[message.body] += 1
            if self._times[message.body] == 1:
                await self._sent.wait()  # the answer to its send is not to be lost
                self._sent.clear()
                await self._unheard.enter_async_context(self._bench.unheard())
                self._refused.set()
                return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS
