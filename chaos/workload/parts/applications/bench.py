"""The bench of one drill of the part `applications`: a topic of its own, clients made with the
settings that applications leave alone, and what is expected of them.

Place in the data path: clients of `client` dial from one slot, as any other part's; nothing of what
they send and read is recorded but what a model expects of it, so their topics are ones that rules
take for the system's own.

Invariants: a client's heartbeats and route polls are RocketMQ's, thirty seconds apart, so that what
has to come at once is not hidden by what comes soon anyway; its seed is drawn, so that a run in
virtual time is one course.

Source: docs/CLIENT.md (defaults); rule M12.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from chaos.links.base import Link, both_ways
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.part import PartKit
from client.administer.admin import Admin, AdminSettings
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import ClientInstance, InstanceSettings
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumeListener, ConsumerObserver, PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    TransactionListener,
    TransactionProducer,
    TransactionSettings,
)
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["GROUP", "IN_FAULTS", "SENT_ONCE", "Bench", "ClusterAdmin"]

GROUP: Final = "applications-asked"
POLL_S: Final = 0.05
PAGE: Final = 32
TIMEOUT_MS: Final = 3_000  # of a request, where no machine is slow: `Bench.timeout_ms`
SEND_MS: Final = 10_000  # of an attempt, too
SENT_ONCE: Final[Mapping[str, Any]] = MappingProxyType(
    {"timeout_ms": SEND_MS, "retry": RetryPolicy(attempt_timeout_ms=SEND_MS)}
)
"""Settings of a client that sends a message, or sends it back, once only, however slow a machine:
brokers store what is sent again to a topic of the system's, or back, a second time."""
IN_FAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"timeout_ms": TIMEOUT_MS, "retry": RetryPolicy()}
)
"""Settings of a producer that sends while there are faults."""
REBALANCE_MS: Final = 500
BUSY: Final = 4
"""By so much longer whatever has to come may take on a machine that has other work to do."""


class _AnyCode:
    """Accepts every code, since what refuses says something, too."""

    def __contains__(self, _: object) -> bool:
        return True


class ClusterAdmin(Admin):
    """An administrator whose requests to all broker groups go to those of the cluster: name servers
    know others as well, of the part `operator`, which nobody serves."""

    def __init__(self, kit: PartKit, slot: Slot, settings: AdminSettings) -> None:
        super().__init__(kit.context.name_servers, slot.dial, settings=settings)
        self._groups = tuple(sorted(kit.context.world.layout.groups))

    async def _broker_names(self) -> tuple[str, ...]:
        return self._groups


class Bench:
    """One drill's means. `began_ns`: what is expected is judged where there was no fault since."""

    def __init__(self, kit: PartKit, slot: Slot, *, drill: str) -> None:
        self.kit = kit
        self.slot = slot
        self.rng = random.Random(kit.rng.getrandbits(64))
        self.name = f"applications-{drill}"
        self.topic = f"{UNLISTED}{self.name}"
        self.broker_group = self.rng.choice(sorted(kit.context.world.layout.groups))
        is_simulated = kit.context.world.links.name == "simulated"
        self.patience = 1 if is_simulated else BUSY
        self.timeout_ms = TIMEOUT_MS * self.patience
        self._numbers = itertools.count()
        self._expectations = Expectations(
            kit.context.history, client=slot.next_client(), client_group=GROUP
        )
        self.begin()

    def begin(self) -> None:
        """Begin anew: what is expected from now on, and by clients of its own."""
        self.began_ns = time.monotonic_ns()
        servers, dial = self.kit.context.name_servers, self.slot.dial
        self.admin: Admin = self.admin_of("")
        self.reader = PullConsumer(GROUP, servers, dial, settings=self.tool_settings())

    # Clients -----------------------------------------------------------------------------------

    def own(self, namespace: str = "") -> InstanceSettings:
        """Return the settings of a client's own instance."""
        # Clients that begin at one instant of virtual time are told apart by their addresses.
        own = ".".join(str(self.rng.randrange(256)) for _ in range(3))
        return InstanceSettings(
            ip=f"127.{own}",
            seed=self.rng.getrandbits(32),
            signer=self.slot.signer,
            namespace=namespace,
        )

    def admin_of(self, namespace: str) -> ClusterAdmin:
        """Return an administrator in a namespace, "" for none."""
        settings = AdminSettings(timeout_ms=self.timeout_ms, instance=self.own(namespace))
        return ClusterAdmin(self.kit, self.slot, settings)

    def producer_settings(self, **settings: Any) -> ProducerSettings:
        """Return the settings of a producer that does not send again because a machine is slow."""
        return ProducerSettings(**{**SENT_ONCE, "instance": self.own(), **settings})

    def producer(self, **settings: Any) -> Producer:
        return Producer(
            f"{self.name}-producers",
            self.kit.context.name_servers,
            self.slot.dial,
            settings=self.producer_settings(**settings),
        )

    def transactions(
        self, listener: TransactionListener, *, group: str | None = None, **settings: Any
    ) -> TransactionProducer:
        return TransactionProducer(
            group or f"{self.name}-producers",
            self.kit.context.name_servers,
            listener,
            self.slot.dial,
            settings=TransactionSettings(producer=self.producer_settings(**settings)),
        )

    def tool_settings(self) -> PullConsumerSettings:
        """Return the settings of a client that reads, or commits, and is no member."""
        return PullConsumerSettings(timeout_ms=self.timeout_ms, register=False, instance=self.own())

    def tool(self, group: str) -> PullConsumer:
        """Return a client that reads and commits for a group, and is no member of it."""
        servers = self.kit.context.name_servers
        return PullConsumer(group, servers, self.slot.dial, settings=self.tool_settings())

    def popper(self, group: str, **settings: Any) -> PopConsumer:
        common = PopConsumerSettings(timeout_ms=self.timeout_ms, instance=self.own())
        return PopConsumer(
            group,
            self.kit.context.name_servers,
            self.slot.dial,
            settings=dataclasses.replace(common, **settings),
        )

    def poller(
        self,
        group: str,
        observer: ConsumerObserver | None = None,
        *,
        lite: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> LitePullConsumer:
        """Return a member that polls; `lite`: settings of its own, `settings`: of any consumer."""
        return LitePullConsumer(
            group,
            self.kit.context.name_servers,
            self.slot.dial,
            settings=LitePullSettings(consumer=self.consumer_settings(**settings), **(lite or {})),
            observer=observer,
        )

    def consumer_settings(self, **settings: Any) -> PushConsumerSettings:
        """Return the settings of a member that starts at the beginning and shares queues soon."""
        common = {"consume_from": ConsumeFrom.FIRST, "rebalance_interval_ms": REBALANCE_MS}
        return PushConsumerSettings(**{**common, "instance": self.own(), **settings})

    def consumer(
        self,
        listener: ConsumeListener,
        observer: ConsumerObserver | None = None,
        *,
        group: str | None = None,
        **settings: Any,
    ) -> PushConsumer:
        return PushConsumer(
            group or f"{self.name}-consumers",
            self.kit.context.name_servers,
            listener,
            self.slot.dial,
            settings=self.consumer_settings(**settings),
            observer=observer,
        )

    def message(self, **more: Any) -> Message:
        number = next(self._numbers)
        return Message(topic=self.topic, body=f"{self.name} {number}".encode(), **more)

    async def make_topic(self, queues: int) -> list[MessageQueue]:
        """Make the drill's topic; return its queues. Raises ClientError."""
        await self.admin.create_topic(self.topic, queues=queues, broker_names=[self.broker_group])
        return [MessageQueue(self.topic, self.broker_group, number) for number in range(queues)]

    async def read(self, queue: MessageQueue) -> list[DeliveredMessage]:
        """Read a queue to its end. Raises ClientError."""
        found = list[DeliveredMessage]()
        position, end = 0, await self.reader.max_offset(queue)
        while position < end:
            result = await self.reader.pull(queue, position, PAGE)
            found += result.messages
            if result.next_begin_offset <= position:
                break
            position = result.next_begin_offset
        return found

    async def request(
        self, code: RequestCode, fields: Mapping[str, str], body: bytes = b"", *, wait_ms: int = 0
    ) -> RemotingCommand:
        """Send the broker group's leader a request, whatever it answers; `wait_ms`: for how long
        it may hold it. Raises ClientError."""
        return await self.request_verbatim(
            RemotingCommand(code=code, ext_fields=dict(fields), body=body), wait_ms=wait_ms
        )

    async def request_verbatim(
        self, command: RemotingCommand, *, wait_ms: int = 0
    ) -> RemotingCommand:
        """Send the command as it is, as `request` does. Raises ClientError."""
        code, fields, body = command.code, command.ext_fields, command.body
        answer, _ = await request_leader(
            self.admin.instance,
            self.broker_group,
            lambda: RemotingCommand(code=code, ext_fields=dict(fields), body=body),
            timeout_ms=self.timeout_ms + wait_ms,
            accept=_AnyCode(),
        )
        return answer

    @staticmethod
    def drop_connections(instance: ClientInstance, name_servers: Sequence[str] = ()) -> int:
        """End all connections of a client to brokers, as a device between them may; return how
        many there were."""
        dropped = 0
        for address in (*instance.routes.nodes(), *name_servers):
            connection = instance.rpc.connection(address)
            if connection is not None:
                connection.abort("a device between drops it")
                dropped += 1
        return dropped

    @contextlib.asynccontextmanager
    async def unheard(
        self, *, both: bool = False, groups: Sequence[str] | None = None
    ) -> AsyncIterator[None]:
        """Lose what brokers send to the drill's clients; with `both` these are cut off from all.
        With `groups`, of brokers those alone, and no name server.

        It is no fault of the run, since it is of this slot alone. Raises LinksError where links
        can't be cut.
        """
        world, slot = self.kit.context.world, self.slot.name
        brokers = [
            place.name
            for group, places in world.layout.groups.items()
            if groups is None or group in groups
            for place in places
        ]
        servers = [server.name for server in world.layout.name_servers if groups is None]
        links = [Link(who=broker, whom=slot) for broker in brokers]
        if both:
            links = both_ways([slot], [*brokers, *servers])
        await world.links.cut(links, self.name)
        try:
            yield
        finally:
            await world.links.heal(self.name)

    @staticmethod
    async def pause() -> None:
        """Wait a moment, between two polls of what is to change."""
        await asyncio.sleep(POLL_S)

    # Expectations ------------------------------------------------------------------------------

    async def comes(
        self,
        question: str,
        probe: Callable[[], Awaitable[object]],
        *,
        expected: object,
        within_s: float,
    ) -> bool:
        """Poll until the answer is what is expected, and hold what it is at last; return whether
        it is that."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s * self.patience
        while (shown := await probe()) != expected and loop.time() < end_s:
            await self.pause()
        self.hold(f"{question}, within {within_s:g} s", expected=expected, answered=shown)
        return bool(shown == expected)

    def hold(
        self, question: str, *, expected: object, answered: object, is_calm: bool = True
    ) -> None:
        """Hold an answer; `is_calm`: judged only without a fault since the drill began."""
        self._expectations.hold(
            question,
            expected=expected,
            answered=answered,
            calm_since=self.began_ns if is_calm else None,
        )

    async def becomes(
        self, question: str, probe: Callable[[], object], *, expected: object, within_s: float
    ) -> bool:
        """Wait until `probe` shows what is expected, and hold what it shows at last; return
        whether it is that."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s * self.patience
        while (shown := probe()) != expected and loop.time() < end_s:
            await self.pause()
        self.hold(f"{question}, within {within_s:g} s", expected=expected, answered=shown)
        return bool(shown == expected)

    async def stays(
        self, question: str, probe: Callable[[], object], *, expected: object, for_s: float
    ) -> None:
        """Hold what `probe` shows when the time is over, whatever faults there are."""
        await asyncio.sleep(for_s)
        self.hold(question, expected=expected, answered=probe(), is_calm=False)

    def failed(self, why: str) -> None:
        """Hold that the drill could be carried out, which takes a cluster without faults."""
        self.hold(
            f"what the clients of {self.name} did",
            expected="done",
            answered=why,
        )
