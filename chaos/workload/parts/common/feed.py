"""The sender of a part of work: a client with one process, or several, to the part's own queues.

Place in the data path: a part that reads in some way has a feed to read from; messages are those of
`chaos.workload.plain_sender`, batches, impatience, repetitions and shards included.

Invariant: a shard of the part has this one process as its writer and one queue, so that its order
is that of the process's sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from chaos.recording.history import MessageRow
from chaos.workload.context import WorkContext
from chaos.workload.key_reader import KnownKeys
from chaos.workload.parts.common.part import PartKit
from chaos.workload.plain_sender import PlainSender
from client.connection.send_codec import CompressionType
from client.produce.producer import Producer, ProducerSettings

__all__ = ["Feed"]


class Feed:
    """Sends `rate` messages per second to `part`'s queues until told to stop.

    `on_acked` gets each message whose send was acknowledged, at its place. `batches`: whether some
    are sent as batches. `kinds`: types of compression, each with a client of its own; with shards
    there is one client.
    """

    def __init__(
        self,
        kit: PartKit,
        part: str,
        slot: str,
        *,
        rate: float,
        shards: int = 0,
        batches: bool = True,
        kinds: Sequence[CompressionType | None] = (None,),
        on_acked: Callable[[MessageRow], None],
    ) -> None:
        assert not shards or len(kinds) == 1
        settings = kit.context.scenario.workload
        work = replace(settings, batch_share=settings.batch_share if batches else 0.0)
        self._context: WorkContext = replace(
            kit.context,
            queues=kit.context.part_queues[part],
            scenario=replace(kit.context.scenario, workload=work),
        )
        self._group = f"{part}-producers"
        self._slot = kit.slots[slot]
        self._rate = rate
        self._shards = range(shards)
        self._on_acked = on_acked
        self._kinds = kinds
        self._rng = kit.rng
        self._done = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set; the pending send is completed first."""
        try:
            async with asyncio.TaskGroup() as clients:
                for kind in self._kinds:
                    clients.create_task(self._send(kind, stop))
        finally:
            self._done.set()

    async def _send(self, kind: CompressionType | None, stop: asyncio.Event) -> None:
        settings = self._context.scenario.workload
        client = self._slot.next_client()
        producer = Producer(
            self._group,
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(
                timeout_ms=settings.send_timeout_ms,
                compression=self._slot.compression(kind),
                instance=self._slot.instance_settings(),
            ),
        )
        async with producer:
            sender = PlainSender(
                self._context,
                producer,
                root=f"{client}.p0",
                client=client,
                shards=self._shards,
                known=KnownKeys(),
                rate=self._rate / len(self._kinds),
                rng=self._rng,
                on_acked=self._on_acked,
            )
            await sender.run(stop)

    async def idle(self) -> None:
        """Wait until the last send has completed."""
        await self._done.wait()
