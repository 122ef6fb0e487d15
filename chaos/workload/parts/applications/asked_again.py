"""One message that is requested several times: each time it is consumed, and answered.

Place in the data path: `client.produce.producer.request`; a push consumer answers with the number
of the delivery.

Invariants: the message is the application's and stays as it is, so that nothing but the request
makes it another one. A message that came with a UNIQ_KEY is that one message whenever it is
requested; here it comes without.

Source: docs/CLIENT.md (request and reply); RocketMQ DefaultMQProducerImpl.request, where each
request has a correlation id and a message id of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.errors import ClientError
from client.message import DeliveredMessage
from client.produce.producer import Producer
from client.produce.request_reply import NoReplyError

__all__ = ["AskedAgain"]

TIMES: Final = 3
REPLY_MS: Final = 10_000  # the member shares out queues first


class AskedAgain:
    """One requester, one responder, one message."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._replier: Producer | None = None
        self._keys: list[str] = []

    async def run(self) -> None:
        """Request one message several times. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        message = bench.message()
        replies = []
        async with bench.producer() as replier, bench.producer() as requester:
            self._replier = replier
            responder = bench.consumer(self._reply)
            responder.subscribe(bench.topic)
            async with responder:
                for _ in range(TIMES):
                    try:
                        reply = await requester.request(message, REPLY_MS, queue=queue)
                        replies.append(reply.body.decode())
                    except NoReplyError:
                        replies.append("none")
        bench.hold(
            f"replies to one message that is requested {TIMES} times",
            expected=[str(number) for number in range(TIMES)],
            answered=replies,
        )
        bench.hold(
            "different keys under which it is consumed",
            expected=TIMES,
            answered=len(set(self._keys)),
        )

    async def _reply(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        """Reply to each request with its number."""
        assert self._replier is not None
        for message in messages:
            number = len(self._keys)
            self._keys.append(message.uniq_key)
            try:
                await self._replier.reply(message, str(number).encode())
            except ClientError:
                continue  # its requester has no reply, and says so
        return ConsumeStatus.CONSUME_SUCCESS
