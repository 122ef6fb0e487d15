"""The part `groups`: subscription groups that are configured, used, deleted and made again.

Place in the data path: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, DELETE_SUBSCRIPTIONGROUP and the two
requests that show configurations, at each broker group's leader, as an operator's tools send them;
beside them a client that commits and fetches the groups' offsets.

Invariants: `groups-kept` is only ever deleted without its offsets, `groups-cleaned` only with them,
so that the first group's offsets are judged as any group's (S5); a configuration is never the one
that a group has by default.

Source: the run format (create_group, delete_group, group; M17); RocketMQ SubscriptionGroupManager,
DeleteSubscriptionGroupRequestHeader.cleanOffset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from chaos.scenario.part_sections import GroupsSection
from chaos.workload.actor import Actor, Operation
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.part import PartKit, PartSpec
from client.connection.instance import ClientInstance
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError, MalformedAnswerError
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SPEC"]

NAME: Final = "groups"
RETAINED: Final = f"{NAME}-kept"
CLEANED: Final = f"{NAME}-cleaned"
TIMEOUT_MS: Final = 3_000
OFFSET_MAX: Final = 1_000
_RETRY_MAX: Final = (1, 9)  # never 16, which a group has that nobody configured
_WORK: Final = ("create", "create", "show", "show", "delete", "commit", "commit", "fetch", "fetch")


class _Groups:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: GroupsSection = kit.section
        self._working = 2
        self._idle = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return the groups, which read nothing and are owed nothing."""
        group = {"kind": "cluster", "at_least_once": False, "ordered": False, "topics": [NAME]}
        return {RETAINED: group, CLEANED: group}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        kit, slot = self._kit, self._kit.slots[NAME]
        client = slot.next_client()
        async with make_tool(kit.context, slot) as tool, asyncio.TaskGroup() as tasks:
            for name in (RETAINED, CLEANED):
                rng = random.Random(kit.rng.getrandbits(64))
                tasks.create_task(self._work(name, client, tool.instance, rng, stop))

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _work(
        self,
        group: str,
        client: str,
        instance: ClientInstance,
        rng: random.Random,
        stop: asyncio.Event,
    ) -> None:
        context, slot = self._kit.context, self._kit.slots[NAME]
        settings = PullConsumerSettings(
            timeout_ms=TIMEOUT_MS, register=False, instance=slot.instance_settings()
        )
        consumer = PullConsumer(group, context.name_servers, slot.dial, settings=settings)
        async with consumer:
            user = _GroupUser(
                self._kit, group, client=client, instance=instance, consumer=consumer, rng=rng
            )
            pace = Pace(self._section.rate / 2, rng)
            while await pace.wait(stop):
                await user.work(rng.choice(_WORK))
        self._working -= 1
        if not self._working:
            self._idle.set()


class _GroupUser:
    """The process that administrates one group and uses its offsets."""

    def __init__(
        self,
        kit: PartKit,
        group: str,
        *,
        client: str,
        instance: ClientInstance,
        consumer: PullConsumer,
        rng: random.Random,
    ) -> None:
        self._context = kit.context
        self._queues = kit.context.part_queues[NAME]
        self._broker_groups = list(kit.context.world.layout.groups)
        self._group = group
        self._instance = instance
        self._consumer = consumer
        self._rng = rng
        self._actor = Actor(
            kit.context.history, root=f"{client}.{group}", client=client, client_group=group
        )

    async def work(self, what: str) -> None:
        if what in ("commit", "fetch"):
            await self._use_offset(is_commit=what == "commit")
            return
        at = self._rng.choice(self._broker_groups)
        if what == "create":
            await self._create(at)
        elif what == "delete":
            await self._delete(at)
        else:
            await self._show(at)

    async def _use_offset(self, *, is_commit: bool) -> None:
        queue = self._rng.choice(self._queues)
        columns: dict[str, Any] = {"offset": self._rng.randint(1, OFFSET_MAX)} if is_commit else {}
        with self._actor.operation(
            "commit_offset" if is_commit else "fetch_offset",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            **columns,
        ) as operation:
            try:
                if is_commit:
                    await self._consumer.commit_offset(queue, columns["offset"])
                    operation.complete("ok")
                else:
                    operation.complete("ok", offset=await self._consumer.fetch_offset(queue))
            except ClientError as error:
                operation.failed(error)

    async def _create(self, at: str) -> None:
        config: dict[str, object] = {
            "groupName": self._group,
            "consumeEnable": self._rng.random() < 0.8,
            "consumeBroadcastEnable": self._rng.random() < 0.5,
            "consumeMessageOrderly": self._rng.random() < 0.3,
            "retryQueueNums": self._rng.randint(1, 3),
            "retryMaxTimes": self._rng.randint(*_RETRY_MAX),
        }
        command = RemotingCommand(
            code=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=msgspec.json.encode(config)
        )
        with self._actor.operation(
            "create_group", broker_group=at, status=_config_text(config)
        ) as operation:
            await self._request(operation, at, command)

    async def _delete(self, at: str) -> None:
        cleans = self._group == CLEANED
        fields = {"groupName": self._group, "cleanOffset": str(cleans).lower()}
        command = RemotingCommand(code=RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields)
        with self._actor.operation(
            "delete_group", broker_group=at, decision="clean" if cleans else "keep"
        ) as operation:
            await self._request(operation, at, command)

    async def _show(self, at: str) -> None:
        """Query the group's configuration, alone or among those of all groups."""
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        fields = {"group": self._group}
        if self._rng.random() < 0.5:
            code, fields = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}
        command = RemotingCommand(code=code, ext_fields=fields)
        with self._actor.operation("group", broker_group=at) as operation:
            await self._request(operation, at, command, is_question=True)

    async def _request(
        self,
        operation: Operation,
        at: str,
        command: RemotingCommand,
        *,
        is_question: bool = False,
    ) -> None:
        """Send it to the leader and complete the operation; of a question with what it shows."""
        try:
            answer, address = await request_leader(
                self._instance, at, lambda: command, timeout_ms=TIMEOUT_MS
            )
            shown = self._shown(answer, address) if is_question else {}
        except ClientError as error:
            operation.failed(error)
            return
        operation.complete("ok", node=self._context.node(address), **shown)

    def _shown(self, answer: RemotingCommand, address: str) -> dict[str, str | None]:
        """Return the columns of an answer. Raises MalformedAnswerError."""
        try:
            body = fastjson.decode(answer.body, dict[str, Any])
        except BodyError as error:
            raise MalformedAnswerError(f"groups at {address}: {error}") from error
        table = body.get("subscriptionGroupTable")
        config = body if table is None else table.get(self._group)
        return {"status": None if config is None else _config_text(config)}


def _config_text(config: Mapping[str, object]) -> str:
    """Return the settings that the part changes, as the history has them."""
    names = (
        "consumeEnable",
        "consumeBroadcastEnable",
        "consumeMessageOrderly",
        "retryQueueNums",
        "retryMaxTimes",
    )
    return " ".join(f"{name}={str(config.get(name)).lower()}" for name in names)


SPEC: Final = PartSpec(
    name=NAME,
    summary="subscription groups configured, used, deleted with their offsets or without",
    topics=lambda section: (NAME,),
    slots=lambda section: (NAME,),
    make=_Groups,
    judged_by=("M17", "S5", "M6"),
)
