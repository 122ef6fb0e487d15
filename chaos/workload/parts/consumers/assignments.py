"""Assignments by the broker: groups whose members come and go, and who is to get which queue.

Place in the data path: QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE at the leader. Members do
nothing but let brokers know them; one tool asks, round after round, for the queues of every member
that the broker knows. One group pulls, another pops shares of queues.

The topic is closed for sends now and then, as one is that is being drained: what may still be read
is assigned all the same.

Invariants: a round is recorded only where one node answered all of it and knew the same members
before it and behind it, so that all answers are of one state; one row per member, all begun and
answered at once.

Source: docs/RUN_FORMAT.md (assignment; C17); RocketMQ QueryAssignmentProcessor.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from chaos.recording.history import QueueRow
from chaos.scenario.part_sections import AssignmentsSection
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.topic_admin import PERM_READ_WRITE, TopicAdmin
from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError, MalformedAnswerError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SPEC"]

NAME: Final = "assignments"
PULLS: Final = f"{NAME}-pull"
POPS: Final = f"{NAME}-pop"
MEMBERS_SLOT: Final = f"{NAME}-members"
TOOL_SLOT: Final = f"{NAME}-tool"
TIMEOUT_MS: Final = 3_000
SHARE: Final = 1  # of a queue that is popped: how many members get it besides its own
PAUSE_S: Final = 0.5
PERM_READ: Final = 4
CALM_NS: Final = 3_000_000_000  # within which name servers know all brokers
BEHIND_S: Final = 6.0
CHANGED_SHARE: Final = 0.2  # of the rounds before which the topic's permission changes
_ONCE: Final = RetryPolicy(attempts_max=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One node's answers for all members of a group: the queues of each, and of two of them as if
    they consumed all there is."""

    node: str
    queues: Sequence[Sequence[QueueRow]]
    broadcast: Sequence[Sequence[QueueRow]]


class _Members:
    """The members of one group, whose number changes."""

    def __init__(self, kit: PartKit, group: str, rng: random.Random) -> None:
        self._kit = kit
        self._section: AssignmentsSection = kit.section
        self._group = group
        self._rng = rng
        self._members: list[PullConsumer] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Let members come and go until `stop`, then end them all."""
        section = self._section
        try:
            while len(self._members) < section.members_min:
                await self._add()
            while not await sleep_until_set(stop, self._rng.expovariate(1 / section.change_s)):
                count = len(self._members)
                if count <= section.members_min or (
                    count < section.members_max and self._rng.random() < 0.5
                ):
                    await self._add()
                else:
                    member = self._members.pop(self._rng.randrange(count))
                    await (member.crash() if self._rng.random() < 0.5 else member.stop())
        finally:
            for member in self._members:
                await member.stop()

    async def _add(self) -> None:
        slot = self._kit.slots[MEMBERS_SLOT]
        member = PullConsumer(
            self._group,
            self._kit.context.name_servers,
            slot.dial,
            settings=PullConsumerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings()),
        )
        await member.start()
        self._members.append(member)
        with contextlib.suppress(ClientError):  # it hears of the brokers later
            await member.queues(NAME)


class AssignmentsPart:
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: AssignmentsSection = kit.section
        self._brokers = sorted({queue.broker_name for queue in kit.context.part_queues[NAME]})
        self._rounds = itertools.count()
        self._idle = asyncio.Event()
        self._began_ns = 0

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for group in (PULLS, POPS):
                rng = random.Random(self._kit.rng.getrandbits(64))
                tasks.create_task(_Members(self._kit, group, rng).run(over))
            tasks.create_task(self._query(over))
            await stop.wait()
            # Faults are healed then: whatever is held of calm alone is asked once more.
            await asyncio.sleep(BEHIND_S)
            over.set()

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return True

    def has_read(self) -> bool:
        return True

    async def _query(self, stop: asyncio.Event) -> None:
        slot = self._kit.slots[TOOL_SLOT]
        client = slot.next_client()
        self._began_ns = time.monotonic_ns()
        async with make_tool(self._kit.context, slot) as tool:
            shared, perm = False, PERM_READ_WRITE
            topic = TopicAdmin(
                self._kit.context, tool.instance, topic=NAME, root=TOOL_SLOT, client=client
            )
            while not await sleep_until_set(stop, self._section.every_s):
                shared = shared or await self._share_pops(tool.instance)
                if self._kit.rng.random() < CHANGED_SHARE:
                    perm = PERM_READ_WRITE + PERM_READ - perm
                    if not await topic.create(stop, perm):
                        break
                for group in (PULLS, POPS) if shared else (PULLS,):
                    for broker, strategy in itertools.product(
                        self._brokers, ("AVG", "AVG_BY_CIRCLE")
                    ):
                        await self._query_all(tool.instance, client, group, broker, strategy)
        self._idle.set()

    async def _share_pops(self, instance: ClientInstance) -> bool:
        """Have every broker hand out shares of queues to the group that pops."""
        body = {
            "topic": NAME,
            "consumerGroup": POPS,
            "mode": "POP",
            "popShareQueueNum": SHARE,
        }
        try:
            for broker in self._brokers:
                await _request(instance, broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
        except ClientError:
            return False
        return True

    async def _query_all(
        self, instance: ClientInstance, client: str, group: str, broker: str, strategy: str
    ) -> None:
        """Query all members' queues, and record that where all answers are of one state."""
        began = time.monotonic_ns()
        try:
            found = await _round(instance, group, broker, strategy)
        except ClientError:
            return
        copies = 1 + SHARE if group == POPS else 1
        if found is None:
            return
        members = len(found.queues)
        if copies > 1 and not copies < members <= len(self._kit.context.part_queues[NAME]):
            return  # fewer pop the whole topic, and more than queues get one each
        ended, name = time.monotonic_ns(), f"{client}/{next(self._rounds)}"
        if began - CALM_NS >= self._began_ns:
            self._hold_queues(found, began, name, group)
        for number, queues in enumerate(found.queues):
            self._kit.context.history.record(
                "assignment",
                "ok",
                t_invoke=began,
                t_complete=ended,
                process=f"{name}-{number}",
                client=client,
                client_group=group,
                broker_group=broker,
                topic=NAME,
                assigned=queues,
                offset=copies,
                ref=name,
                status=strategy,
                node=self._kit.context.node(found.node),
            )

    def _hold_queues(self, found: _Round, began: int, name: str, group: str) -> None:
        """Expect that a round has queues, which C17 leaves to others: whom no name server knows,
        nobody is given. And that a member which consumes by broadcast is given what all are given
        together."""
        expectations = Expectations(self._kit.context.history, client=name, client_group=group)
        everything = sorted({_text(queue) for queues in found.queues for queue in queues})
        for asked, expected, answered in (
            (
                "whether queues of a topic that may be read are assigned at all",
                True,
                bool(everything),
            ),
            (
                "queues of members that consume by broadcast",
                [everything] * len(found.broadcast),
                [sorted(map(_text, queues)) for queues in found.broadcast],
            ),
        ):
            expectations.hold(
                asked,
                expected=expected,
                answered=answered,
                topic=NAME,
                calm_since=began - CALM_NS,
            )


def _text(queue: QueueRow) -> str:
    return f"{queue.broker_group}/{queue.queue}"


async def _round(instance: ClientInstance, group: str, broker: str, strategy: str) -> _Round | None:
    """Query the queues of all members, twice; None where the answers may be of different states:
    a broker asks name servers for each, of which one that has just begun knows fewer queues.

    Raises ClientError.
    """
    before, node = await _members_of(instance, group, broker)
    found = await _assignments(instance, group, broker, strategy, members=before, node=node)
    broadcast = await _assignments(
        instance, group, broker, strategy, members=before[:2], node=node, model="BROADCASTING"
    )
    again = await _assignments(instance, group, broker, strategy, members=before, node=node)
    if found is None or found != again:
        return None
    behind, address = await _members_of(instance, group, broker)
    if broadcast is None or (behind, address) != (before, node):
        return None
    return _Round(node=node, queues=found, broadcast=broadcast)


async def _members_of(instance: ClientInstance, group: str, broker: str) -> tuple[list[str], str]:
    """Return the members that the broker knows, and the node that says so."""
    fields = {"consumerGroup": group}
    answer, node = await _request(
        instance, broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=fields
    )
    return sorted(answer["consumerIdList"]), node


async def _request(
    instance: ClientInstance,
    broker: str,
    code: RequestCode,
    *,
    fields: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
) -> tuple[dict[str, Any], str]:
    """Query the leader; return the answer's body, and who answered. Raises ClientError."""
    answer, address = await call_group(
        instance,
        broker,
        lambda: RemotingCommand(
            code=code,
            ext_fields=dict(fields or {}),
            body=b"" if body is None else msgspec.json.encode(body),
        ),
        topic=NAME,
        timeout_ms=TIMEOUT_MS,
        policy=_ONCE,
    )
    try:
        return msgspec.json.decode(answer.body or b"{}", type=dict[str, Any]), address
    except msgspec.DecodeError as error:
        raise MalformedAnswerError(f"{code.name}: {error}") from error


SPEC: Final = PartSpec(
    name=NAME,
    summary="groups whose members come and go, and which queues the broker assigns to each",
    topics=lambda _: [NAME],
    slots=lambda _: [MEMBERS_SLOT, TOOL_SLOT],
    make=AssignmentsPart,
    judged_by=("C17", "M12"),
)


async def _assignments(
    instance: ClientInstance,
    group: str,
    broker: str,
    strategy: str,
    *,
    members: Sequence[str],
    node: str,
    model: str = "CLUSTERING",
) -> list[list[QueueRow]] | None:
    """Return the queues of each member that consumes by this model; None where another node
    answers, or says nothing. Raises ClientError."""
    found = []
    for member in members:
        body = {
            "topic": NAME,
            "consumerGroup": group,
            "clientId": member,
            "strategyName": strategy,
            "messageModel": model,
        }
        rows, address = await _request(instance, broker, RequestCode.QUERY_ASSIGNMENT, body=body)
        if address != node or rows.get("messageQueueAssignments") is None:
            return None
        found.append(
            [
                QueueRow(
                    broker_group=row["messageQueue"]["brokerName"],
                    topic=row["messageQueue"]["topic"],
                    queue=row["messageQueue"]["queueId"],
                )
                for row in rows["messageQueueAssignments"]
            ]
        )
    return found
