"""Calls that run out of time: what became of the first attempt decides what the call says.

Place in the data path: `client.connection.retry`, `broker_call` and `remoting.connections.rpc`.
The first attempt of a send is carried out and its answer lost; then the client is cut off from all,
so that each later attempt is surely refused, until the call's time is over. Another client, which
knows its way and has lost its connections, is cut off before it sends.

Invariants: a call is definite only where no attempt can have been carried out; it ends with its own
time, which is shorter than a connection may take.

Source: docs/CLIENT.md (outcomes, retries, timeouts).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from client.connection.retry import RetryPolicy
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer

__all__ = ["OutOfTime"]

ATTEMPT_MS: Final = 700
CALL_MS: Final = 3_000
CARRIED_OUT_S: Final = 0.4  # by when the first attempt is
SHORT_MS: Final = 1_000
LATE_S: Final = 0.5


class OutOfTime:
    """A topic whose messages brokers may store twice: nothing is sent twice here."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Have calls run out of time. Raises ClientError, LinksError."""
        await self._bench.make_topic(1)
        retry = RetryPolicy(attempt_timeout_ms=ATTEMPT_MS)
        long: dict[str, Any] = {"retry": retry, "timeout_ms": CALL_MS}
        short: dict[str, Any] = {"retry": retry, "timeout_ms": SHORT_MS}
        async with self._bench.producer(**long) as one, self._bench.producer(**short) as other:
            for producer in (one, other):
                await producer.send(self._bench.message())  # knows a route, and is connected
            await self._lose_first(one)
            await self._cut_off(other)

    async def _lose_first(self, producer: Producer) -> None:
        """Lose the first answer, and cut off what follows. Raises LinksError."""
        bench = self._bench
        message = bench.message()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(bench.unheard())
            sending = asyncio.create_task(self._outcome(producer, message))
            await asyncio.sleep(CARRIED_OUT_S)
            await stack.enter_async_context(bench.unheard(both=True))
            bench.drop_connections(producer.instance)  # no other attempt leaves this client
            outcome = await sending
        bench.hold(
            "outcome of a send whose first answer was lost, and that was cut off from then on",
            expected="unknown",
            answered=outcome,
        )

    async def _cut_off(self, producer: Producer) -> None:
        """Cut off a client whose connections are gone. Raises LinksError."""
        bench, loop = self._bench, asyncio.get_running_loop()
        async with bench.unheard(both=True):
            bench.drop_connections(producer.instance)
            began_s = loop.time()
            outcome = await self._outcome(producer, bench.message())
            took_s = loop.time() - began_s
        bench.hold(
            "outcome of a send that was cut off before it began",
            expected="not done",
            answered=outcome,
        )
        limit_s = (SHORT_MS / 1000 + LATE_S) * bench.patience
        bench.hold(
            f"whether a send with {SHORT_MS} ms ended within {limit_s:g} s",
            expected=True,
            answered=took_s <= limit_s,
        )

    async def _outcome(self, producer: Producer, message: Message) -> str:
        try:
            await producer.send(message)
        except ClientError as error:
            return "not done" if error.definite else "unknown"
        return "done"
