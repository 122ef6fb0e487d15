"""The administrator client's calls, beside the producers and members of the part `calls`.

Place in the data path: `client.administer.admin`, directly or through the blocking client; what it
made is queried by its own calls and by raw requests, and what it shows is held against what was
made and sent.

Invariants: topics and groups are the part's own; a topic or group is given up once the outcome of a
change is not known; what name servers or another leader may still show otherwise by right is judged
only where there was no fault since the change.

Source: docs/CLIENT.md; RocketMQ DefaultMQAdminExt.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.messages import wall_ms
from chaos.workload.namespaces import wire_name
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.calls.sender import GROUP, Sent
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.operator.registrations import CLUSTER
from chaos.workload.parts.operator.requests import OperatorRequests
from chaos.workload.same_loop import through_blocking
from client.administer.admin import Admin, AdminSettings
from client.blocking.sync_clients import SyncAdmin, SyncPullConsumer
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["AdminCalls", "contradictions_of"]

NAME: Final = "calls-made"
EVERY_S: Final = 0.25
TIMEOUT_MS: Final = 3_000
COUNT_MAX: Final = 64
FAR_MS: Final = 600_000  # more than clocks differ by
DAY_MS: Final = 86_400_000
CALM_S: Final = 4.0  # between the load and what is judged only without faults
GROUP_DEFAULTS: Final[Mapping[str, int]] = {"retry_times_max": 16, "retry_queues": 1}
GROUPS_MADE: Final[Sequence[Mapping[str, int]]] = (
    {"retry_queues": 0},
    {"retry_times_max": 0},
    {"retry_times_max": 0, "retry_queues": 0},
    {"retry_times_max": 3, "retry_queues": 8},
)
"""The kinds of groups whose configuration is judged in any run: each limit at 0, and beyond 1."""
_PERMS: Final = (6, 6, 4, 2)
_BROKER_SHARE: Final = 0.5  # of the topics are made at one broker group by its name


class AdminCalls:
    """One client, which makes one call after another."""

    def __init__(
        self,
        kit: PartKit,
        slot: Slot,
        sent: Mapping[str, Sent],
        queues: Sequence[MessageQueue],
        *,
        rng: random.Random,
    ) -> None:
        self._context = kit.context
        self._slot = slot
        self._sent = sent
        self._queues = queues
        self._rng = rng
        self._numbers = itertools.count()
        self._groups = sorted(kit.context.world.layout.groups)
        instance = slot.instance_settings()
        admin = Admin(
            kit.context.name_servers,
            slot.dial,
            settings=AdminSettings(timeout_ms=TIMEOUT_MS, instance=instance),
        )
        self._admins = (admin, through_blocking(admin, SyncAdmin))
        self._expectations = Expectations(
            kit.context.history, client=slot.next_client(), client_group=GROUP
        )

    @property
    def _admin(self) -> Admin:
        return self._rng.choice(self._admins)

    async def run(self, stop: asyncio.Event) -> None:
        """Make calls until `stop`, and then, without faults, groups of all kinds."""
        calls: tuple[Callable[[], Awaitable[None]], ...] = (
            self._make_topic,
            self._make_group,
            self._consume_and_delete,
            self._query,
            self._query,
            self._show_cluster,
        )
        async with self._admins[0]:
            while not await sleep_until_set(stop, self._rng.expovariate(1 / EVERY_S)):
                try:
                    await self._rng.choice(calls)()
                except ClientError:
                    continue  # a broker that can't answer now is other rules' matter
            await asyncio.sleep(CALM_S)
            with contextlib.suppress(ClientError):
                for named in GROUPS_MADE:
                    await self._make_group_of(named, {}, named)

    def _hold(self, what: str, expected: object, answered: object, since_ns: int | None) -> None:
        self._expectations.hold(what, expected=expected, answered=answered, calm_since=since_ns)

    # Topics and groups -------------------------------------------------------------------------

    async def _make_topic(self) -> None:
        """Make a topic, change it, and delete it; ask name servers after each. Raises ClientError.

        A call returns when a name server shows the topic.
        """
        rng, topic = self._rng, f"{NAME}-{next(self._numbers)}"
        names = [rng.choice(self._groups)] if rng.random() < _BROKER_SHARE else self._groups
        for _ in range(rng.randint(1, 2)):
            queues, perm, since_ns = rng.randint(1, 6), rng.choice(_PERMS), time.monotonic_ns()
            await self._admin.create_topic(topic, queues=queues, perm=perm, broker_names=names)
            for name in names:
                config = await self._config(name, RequestCode.GET_TOPIC_CONFIG, topic=topic)
                self._hold(
                    f"topic {topic} at {name}, made with {queues} queues and permission {perm}",
                    f"read {queues} write {queues} perm {perm}",
                    f"read {config.get('readQueueNums')} write {config.get('writeQueueNums')}"
                    f" perm {config.get('perm')}",
                    since_ns,
                )
            route = await self._admin.topic_route(topic)
            expected = [MessageQueue(topic, name, n) for name in names for n in range(queues)]
            self._hold(
                f"queues of {topic} in its route, with permission {perm}",
                f"read {expected if perm & 4 else []} write {expected if perm & 2 else []}",
                f"read {sorted(route.read_queues)} write {sorted(route.write_queues)}",
                since_ns,
            )
        await self._admin.delete_topic(topic)

    async def _make_group(self) -> None:
        """Configure a group, and delete it. Raises ClientError."""
        rng = self._rng
        await self._make_group_of(
            {"retry_times_max": rng.randint(0, 20), "retry_queues": rng.randint(0, 4)},
        )

    async def _make_group_of(self, *settings: Mapping[str, int]) -> None:
        """Configure a group by what each of the settings names, one after the other, and by the
        defaults otherwise, and delete it. Raises ClientError."""
        group = f"{NAME}-{next(self._numbers)}"
        for given in settings:
            since_ns = time.monotonic_ns()
            await self._admin.create_group(group, **given)
            wanted = {**GROUP_DEFAULTS, **given}
            for name in self._groups:
                config = await self._config(
                    name, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group
                )
                self._hold(
                    f"group {group} at {name}, made by {given}",
                    f"retries {wanted['retry_times_max']} in {wanted['retry_queues']}"
                    " consumes True",
                    f"retries {config.get('retryMaxTimes')} in {config.get('retryQueueNums')}"
                    f" consumes {config.get('consumeEnable')}",
                    since_ns,
                )
        await self._admin.delete_group(group)

    async def _config(
        self, broker_group: str, code: RequestCode, **fields: str
    ) -> Mapping[str, object]:
        """Query a broker group's leader for what was made, by its name on the wire."""
        named = {key: wire_name(self._slot.namespace, name) for key, name in fields.items()}
        command = RemotingCommand(code=code, ext_fields=named)
        answer, _ = await request_leader(
            self._admins[0].instance, broker_group, lambda: command, timeout_ms=TIMEOUT_MS
        )
        config: Mapping[str, object] = json.loads(answer.body)
        return config

    # Progress ----------------------------------------------------------------------------------

    async def _consume_and_delete(self) -> None:
        """Commit offsets of a group of its own, ask for its progress, reset it, and delete it with
        its offsets or without them. Raises ClientError."""
        rng, group = self._rng, f"{NAME}-{next(self._numbers)}"
        queue, topic = rng.choice(self._queues), self._queues[0].topic
        consumer = PullConsumer(
            group,
            self._context.name_servers,
            self._slot.dial,
            settings=PullConsumerSettings(register=False, instance=self._slot.instance_settings()),
        )
        blocking = through_blocking(consumer, SyncPullConsumer)
        async with consumer:
            since_ns = time.monotonic_ns()
            end = await rng.choice((consumer, blocking)).max_offset(queue)
            offset = rng.randint(0, end)
            await rng.choice((consumer, blocking)).commit_offset(queue, offset)
            progress = await self._admin.consumer_progress(group, rng.choice((None, topic)))
            shown = progress.get(queue)
            self._hold(
                f"progress of {group} in {queue}, committed at {offset}, of {end} or more",
                f"{offset}, the end not below",
                f"{shown.consumer_offset}, the end {'not ' * (shown.broker_offset >= end)}below"
                if shown is not None
                else "none",
                since_ns,
            )
            await self._reset(group, queue, offset, end)
            fetched = await rng.choice((consumer, blocking)).fetch_offset(queue)
            cleans = rng.random() < 0.5
            await self._admin.create_group(group)
            await self._admin.delete_group(group, clean_offsets=cleans)
            left = await rng.choice((consumer, blocking)).fetch_offset(queue)
            # A group without an offset begins where a young topic does.
            self._hold(
                f"offset of {group} behind its deletion, {'with' if cleans else 'without'} offsets",
                None if cleans and left == 0 else ("none" if cleans else fetched),
                "none" if left is None else left,
                since_ns,
            )

    async def _reset(self, group: str, queue: MessageQueue, offset: int, end: int) -> None:
        """Reset the group to the queue's beginning or end, forced or not. Raises ClientError."""
        rng, since_ns = self._rng, time.monotonic_ns()
        to_end, is_force = rng.random() < 0.6, rng.random() < 0.4
        offsets = await self._admin.reset_offsets(
            group,
            queue.topic,
            -1 if to_end else 0,
            is_force=is_force,
            broker_names=[queue.broker_name],
        )
        shown = offsets.get(queue)
        if not to_end:
            expected, answered = "0", str(shown)
        elif is_force:
            expected = "the end"
            answered = expected if shown is not None and shown >= end else str(shown)
        else:
            expected, answered = str(offset), str(shown)
        self._hold(
            f"reset of {group} at {offset} of {end} to the {'end' if to_end else 'beginning'},"
            f" forced {is_force}",
            expected,
            answered,
            since_ns,
        )

    # Messages and brokers ----------------------------------------------------------------------

    async def _query(self) -> None:
        """Query a message by a key or its id, within times and outside. Raises ClientError."""
        rng, known = self._rng, [each for each in self._sent.values() if each.message.keys]
        if not known:
            return
        one = rng.choice(known)
        topic, uniq_key = one.message.topic, str(one.message.uniq_key)
        is_unique = rng.random() < 0.4
        key = uniq_key if is_unique else one.message.keys[-1]
        is_within = rng.random() < 0.7
        begin_ms = one.began_ms - FAR_MS if is_within else one.acked_ms + FAR_MS
        times = rng.choice(
            (
                {"begin_ms": begin_ms, "end_ms": one.acked_ms + 2 * FAR_MS},
                {"begin_ms": begin_ms} if not is_within else {},
            )
        )
        is_within = is_within or not times
        found = await self._admin.query_messages(
            topic, key, count_max=rng.choice((1, COUNT_MAX)), unique=is_unique, **times
        )
        self._hold(
            f"messages under {key}, an id: {is_unique}, {'within' if is_within else 'outside'}"
            " their times",
            [uniq_key] if is_within else [],
            sorted({message.uniq_key for message in found}),
            None,
        )

    async def _show_cluster(self) -> None:
        """Ask who is there, and a replica what it knows of its group. Raises ClientError."""
        layout, since_ns = self._context.world.layout, time.monotonic_ns()
        info = await self._admin.cluster_info()
        self._hold(
            "broker groups of the cluster",
            {layout.cluster: self._groups},
            {
                name: sorted(groups)
                for name, groups in info.cluster_addr_table.items()
                if not name.startswith(CLUSTER)  # another part's own
            },
            since_ns,
        )
        group = self._rng.choice(self._groups)
        place = self._rng.choice(layout.groups[group])
        status = await self._admin.replica_status(place.address)
        await self._show_runtime(place.name, place.address)
        voters = sorted(each.node for each in layout.groups[group])
        self._hold(
            f"status of {place.name}",
            f"{place.node} of {group}: {voters}",
            f"{status.node} of {status.group}: {sorted(status.voters)}",
            since_ns,
        )

    async def _show_runtime(self, name: str, address: str) -> None:
        """Query a broker's process; hold how its figures go together. Raises ClientError."""
        requests = OperatorRequests(self._admins[0].instance)
        command = RemotingCommand(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        body = await requests.json_at(address, command)
        self._hold(
            f"figures of the process {name} that contradict each other",
            [],
            contradictions_of(body.get("table", {})),
            None,
        )


def contradictions_of(table: Mapping[str, str]) -> list[str]:
    """Return what can't be of the answer to GET_BROKER_RUNTIME_INFO: names of its figures; nothing
    of one that is not of ledgermq."""
    if "raftRole" not in table:
        return []

    def number(key: str) -> int:
        return int(table.get(key, "-1"))

    rising = [
        ("commitLogMinOffset", "commitLogMaxOffset"),
        ("raftAppliedIndex", "raftCommitIndex"),
        ("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
        ("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
        ("msgPutTotalTodayNow", "putMessageTimesTotal"),
        ("putMessageTimesTotal", "msgPutTotalTodayNow"),
        ("putMessageTimesTotal", "putMessageSizeTotal"),
    ]
    wrong = [
        " ".join(names)
        for names in rising
        if any(not 0 <= number(low) <= number(high) for low, high in itertools.pairwise(names))
    ]
    if table.get("brokerActive") == "true" and table.get("raftRole") != "leader":
        wrong.append("brokerActive raftRole")
    now_ms = wall_ms()
    times = ("bootTimestamp", "earliestMessageTimeStamp")
    wrong += [name for name in times if abs(number(name) - now_ms) > DAY_MS]  # no run is longer
    for name, text in table.items():
        if name.startswith("scheduleMessageOffset_"):
            delivered, _, stored = text.partition(",")
            if not 0 <= int(delivered) <= int(stored):
                wrong.append(name)
    return wrong
