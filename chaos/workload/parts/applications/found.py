"""Places that clients look for in a topic: by time, at its end, and beyond it; of a producer that
knows a name server which is gone.

Place in the data path: `client.consume.pull_consumer` and `pop_consumer`, in a topic whose
messages, with their times, one reader has read.

Invariant: what is found is computed from the messages read, each with its offset and time.

Source: RocketMQ ConsumeQueue.getOffsetInQueueByTime, PullStatus, ConsumeInitMode.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pull_consumer import PullConsumer
from client.message import DeliveredMessage, MessageQueue
from client.produce.producer import Producer

__all__ = ["FoundPlaces"]

MESSAGES: Final = 8
APART_S: Final = 0.03
SEARCHES: Final = 8
PULLS: Final = 6
BEYOND: Final = 5
INVISIBLE_MS: Final = 20_000
HELD_MS: Final = 300
LATE_S: Final = 1.0
COMMITTED_S: Final = 2.0
BY_ITSELF_SHARE: Final = 0.3  # of the commits by pulls have one of its own before them
NO_PORT: Final = 1


class FoundPlaces:
    """One queue, filled first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Fill the queue, and look for places. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        servers = bench.kit.context.name_servers
        # Another port of a machine that is there: it refuses connections.
        host, _, _ = bench.slot.dial.get(servers[0], servers[0]).rpartition(":")
        nobody = f"{host}:{NO_PORT}"
        producer = Producer(
            f"{bench.name}-producers",
            "; ".join((nobody, *servers)),
            {**bench.slot.dial, nobody: nobody},
            settings=bench.producer_settings(),
        )
        async with producer:
            for number in range(MESSAGES):
                message = bench.message(tags="ab"[number % 2])
                await producer.send(message, queue=queue)
                await asyncio.sleep(bench.rng.choice((0, APART_S)))
            there = list((await bench.reader.pull(queue, 0, MESSAGES)).messages)
            bench.hold(
                "offsets of what was sent to a queue of one's own",
                expected=list(range(MESSAGES)),
                answered=[message.queue_offset for message in there],
            )
            await self._search(queue, there)
            await self._pull(queue, there)
            await self._commit_by_the_way(queue)
            newest = bench.message()
            popped = await self._pop_from_end()
            await producer.send(newest, queue=queue)
            popped += await self._pop_from_end()
            all_of_it = [message.body for message in there]
            # A young topic is popped from its beginning, another one from its last message on.
            expected = all_of_it if len(popped) > len(all_of_it) else all_of_it[-1:]
            bench.hold(
                "what a group pops that begins at the end",
                expected=[*expected, newest.body],
                answered=popped,
            )

    async def _search(self, queue: MessageQueue, there: list[DeliveredMessage]) -> None:
        rng, times = self._bench.rng, [message.store_timestamp_ms for message in there]
        for _ in range(SEARCHES):
            wanted = rng.choice(times) + rng.choice((-1, 0, 1))
            if wanted > times[-1]:
                continue
            found = await self._bench.reader.search_offset(queue, wanted)
            self._bench.hold(
                f"offset of the first message at {wanted} or later, of {times}",
                expected=next(at for at, time_ms in enumerate(times) if time_ms >= wanted),
                answered=found,
            )

    async def _pull(self, queue: MessageQueue, there: list[DeliveredMessage]) -> None:
        rng, reader = self._bench.rng, self._bench.reader
        loop = asyncio.get_running_loop()
        for _ in range(PULLS):
            offset, count = rng.randint(0, MESSAGES + BEYOND), rng.randint(1, MESSAGES)
            tag, held_ms = rng.choice(("*", "a", "b || c", "none")), rng.choice((0, HELD_MS))
            began_s = loop.time()
            result = await reader.pull(queue, offset, count, suspend_ms=held_ms, expression=tag)
            took_s = loop.time() - began_s
            wanted = [
                message.queue_offset
                for message in there[offset:]
                if tag == "*" or message.tags in tag.split(" || ")
            ][:count]
            if offset > MESSAGES:
                expected = f"OFFSET_ILLEGAL [] {MESSAGES}"
            elif offset == MESSAGES:
                expected = f"NO_NEW_MSG [] {MESSAGES}"
            elif not wanted:
                expected = f"NO_MATCHED_MSG [] {MESSAGES}"
            else:
                expected = f"FOUND {wanted} {result.next_begin_offset}"
            # A pull whose messages are all unwanted may be held, and says then that nothing came.
            status = result.status.value
            if status == "NO_NEW_MSG" and not wanted and offset < MESSAGES and held_ms:
                status = "NO_MATCHED_MSG"
            found = [message.queue_offset for message in result.messages]
            what = f"pull of {count} from {offset} with {tag!r}, held {held_ms} ms"
            self._bench.hold(
                what, expected=expected, answered=f"{status} {found} {result.next_begin_offset}"
            )
            self._bench.hold(
                f"{what}: whether it took more than its time",
                expected=False,
                answered=took_s > held_ms / 1000 + LATE_S * self._bench.patience,
            )

    async def _commit_by_the_way(self, queue: MessageQueue) -> None:
        """Commit with pulls, or not. One alone may not be stored, which is allowed; of some it is
        the last one, and a pull that commits nothing changes nothing."""
        bench = self._bench
        async with bench.tool(f"{bench.name}-readers") as group:
            known: int | None = None  # a group that has committed nothing has no offset
            offsets: list[int | None] = [0, bench.rng.randint(1, MESSAGES), 0, None, MESSAGES, None]
            middle = [bench.rng.choice((None, *range(MESSAGES + 1))) for _ in range(PULLS)]
            for wanted in (*offsets, *middle):
                if bench.rng.random() < BY_ITSELF_SHARE and known is not None:
                    known = bench.rng.randint(0, MESSAGES)
                    await group.commit_offset(queue, known)
                what = f"offset {known} of a group that commits {wanted} by its pulls"
                known = known if wanted is None else wanted
                await bench.comes(
                    what,
                    partial(self._pull_and_fetch_offset, group, queue, wanted),
                    expected=known,
                    within_s=COMMITTED_S,
                )

    async def _pull_and_fetch_offset(
        self, group: PullConsumer, queue: MessageQueue, wanted: int | None
    ) -> int | None:
        """Pull once, held or not, and return the group's offset. Raises ClientError."""
        rng = self._bench.rng
        offset, held_ms = rng.choice(((0, 0), (MESSAGES // 2, 0), (MESSAGES, HELD_MS)))
        await group.pull(queue, offset, 1, suspend_ms=held_ms, commit_offset=wanted)
        return await group.fetch_offset(queue)

    async def _pop_from_end(self) -> list[bytes]:
        bench = self._bench
        async with bench.popper(f"{bench.name}-poppers") as popper:
            found = await popper.pop(
                bench.topic, invisible_ms=INVISIBLE_MS, poll_ms=HELD_MS, from_end=True
            )
            if found:
                await popper.ack_all(found)
        return [each.message.body for each in found]
