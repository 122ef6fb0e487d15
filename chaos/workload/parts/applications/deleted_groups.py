"""Groups that are deleted while their consumers hold what they have popped; the offsets stay.

Place in the data path: `broker.groups` and `broker.pop`, in a topic of the drill's own. A consumer
pops messages, acknowledges one, has its group deleted without its offsets, and acknowledges another
one; then the group is made again, or a pop makes it.

Invariants: what was not acknowledged comes again, once, when its time is over, since the offsets
are behind it; what was acknowledged with success does not, before the deletion or after it.

Source: RocketMQ AdminBrokerProcessor.deleteSubscriptionGroup (cleanOffset), PopReviveService, which
passes over what a group has popped that is not there when its time is over: the pops that go on
make the group.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.errors import BrokerRefusedError

__all__ = ["DeletedGroups"]

MESSAGES: Final = 6
INVISIBLE_MS: Final = 1_500
AGAIN_S: Final = 6.0  # by when it comes again that was left
STAYS_S: Final = 1.0  # beyond its time, for which nothing more may come
POLL_MS: Final = 300


class DeletedGroups:
    """One group that is made again, and one that its consumer's pops make."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._invisible_ms = INVISIBLE_MS * bench.patience

    async def run(self) -> None:
        """Delete both, one after the other. Raises ClientError."""
        await self._bench.make_topic(1)
        async with self._bench.producer() as producer:
            bodies = [self._bench.message() for _ in range(MESSAGES)]
            for message in bodies:
                await producer.send(message)
        wanted = [message.body for message in bodies]
        for how in ("made again", "made by a pop"):
            name = f"{self._bench.name}-{how.replace(' ', '-')}"
            async with self._bench.popper(name) as popper:
                await self._delete(popper, wanted, how)

    async def _delete(self, popper: PopConsumer, wanted: Sequence[bytes], how: str) -> None:
        """Pop all, delete the group, and pop what comes again. Raises ClientError."""
        bench = self._bench
        popped = await self._pop_all(popper, wanted)
        if len(popped) < len(wanted):
            return  # it is late, which other rules judge
        acked = [await self._ack(popper, popped.pop(wanted[0]))]
        await bench.admin.delete_group(popper.group)
        if how == "made again":
            await bench.admin.create_group(popper.group)
        acked.append(await self._ack(popper, popped.pop(wanted[1])))
        done = [body for body, is_acked in zip(wanted, acked, strict=False) if is_acked]
        came = await self._pop_again(popper, set(popped))
        bench.hold(
            f"as which try, and how often, it comes again that a deleted group has popped, {how}",
            expected=[[(1, 1)]] * len(popped),
            answered=[sorted(came[body].items()) for body in popped],
        )
        bench.hold(
            f"what comes again that a deleted group has acknowledged, {how}",
            expected=[],
            answered=[body for body in done if body in came],
            is_calm=False,
        )

    async def _pop_all(
        self, popper: PopConsumer, wanted: Sequence[bytes]
    ) -> dict[bytes, PoppedMessage]:
        """Pop until all has come, or is late. Raises ClientError."""
        popped: dict[bytes, PoppedMessage] = {}
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._invisible_ms / 2_000
        while len(popped) < len(wanted) and loop.time() < end_s:
            for each in await self._pop(popper, POLL_MS):
                popped[each.message.body] = each
        return popped

    async def _pop(self, popper: PopConsumer, poll_ms: int) -> list[PoppedMessage]:
        return await popper.pop(self._bench.topic, invisible_ms=self._invisible_ms, poll_ms=poll_ms)

    async def _ack(self, popper: PopConsumer, popped: PoppedMessage) -> bool:
        """Acknowledge; return whether that was a success: one that is refused counts for nothing.
        Raises ClientError."""
        try:
            await popper.ack(popped)
        except BrokerRefusedError:
            return False
        return True

    async def _pop_again(
        self, popper: PopConsumer, wanted: set[bytes]
    ) -> dict[bytes, Counter[int]]:
        """Pop and acknowledge until all has come again, or is late, and for a while more; return by
        message how often it came as which try. Raises ClientError."""
        came: dict[bytes, Counter[int]] = defaultdict(Counter)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + AGAIN_S * self._bench.patience
        while not wanted <= came.keys() and loop.time() < end_s:
            await self._take(popper, came)
        end_s = loop.time() + self._invisible_ms / 1_000 + STAYS_S
        while loop.time() < end_s:
            await self._take(popper, came)
        return came

    async def _take(self, popper: PopConsumer, came: dict[bytes, Counter[int]]) -> None:
        for each in await self._pop(popper, POLL_MS):
            message = each.message
            came[message.body][message.reconsume_times] += 1
            await popper.ack(each)
