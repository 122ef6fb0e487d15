"""After the load: wait until the cluster is whole, transactions are decided, everything is read.

Place in the data path: the heal and drain phases of `chaos.experiment.experiment`.

A verdict needs a history that is closed: a message that is appended after the maximum offset was
read makes its queue undrained, so nothing is drained before the last check of a transaction is
past. No message says that a broker has no more checks to send; the laboratory infers it from
silence: a broker checks every undecided half once per interval.

Invariants: what is not reached in time is left as it is and shows in the run (undrained queues,
replicas left behind), never waited for without bound.

Source: the run format (phases, queues); RocketMQ's check of half messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.cluster.layout import BrokerPlace
from chaos.experiment.load import Workload
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import TransactionsSection
from chaos.systems.base import SystemFailedError
from chaos.systems.watch import ClusterWatch
from chaos.workload.context import Slot, WorkContext
from chaos.workload.final_drain import DrainedQueue, drain, read_ends
from chaos.workload.offset_reader import make_tool, read_min_offset
from chaos.worlds.world import World
from client.errors import ClientError
from client.message import MessageQueue

__all__ = [
    "await_caught_up",
    "await_ended",
    "await_idle",
    "await_settled",
    "drain_all",
    "read_system_queues",
]

POLL_S: Final = 0.1
CHECK_MARGIN_MS: Final = 1_000
DRAIN_ROUNDS_MAX: Final = 5


async def await_caught_up(
    world: World, watch: ClusterWatch, *, deadline_s: float
) -> list[BrokerPlace]:
    """Wait until every node has caught up with its leader; return the nodes that did not.

    Every node must answer and have applied what its leader had committed, and every group must have
    a ready leader. Raises SystemFailedError where a group is left without one, so that nothing
    can be read.
    """
    layout = world.layout
    while True:
        statuses = watch.statuses
        behind = [place for place in layout.brokers if place.name not in statuses]
        leaderless = []
        for group, places in layout.groups.items():
            leader = watch.leader(group)
            if leader is None:
                leaderless.append(group)
                continue
            commit = statuses[leader].commit_index
            behind += [
                place
                for place in places
                if place.name in statuses and statuses[place.name].applied_index < commit
            ]
        if not behind and not leaderless:
            return []
        if asyncio.get_running_loop().time() >= deadline_s:
            if leaderless:
                raise SystemFailedError(
                    f"the cluster did not come back: no leader of {', '.join(leaderless)}"
                )
            return behind
        await asyncio.sleep(POLL_S)


async def await_settled(
    workload: Workload,
    history: HistoryWriter,
    checks: TransactionsSection,
    *,
    immunity_ms: int,
    deadline_s: float,
) -> None:
    """Wait until no undecided half is left and every part is settled, or time is up.

    No half is left where checks have been silent for long enough. `immunity_ms`: for how long
    beyond the timeout some halves are not checked.
    """
    began_ns = history.now_ns()
    quiet_ms = 2 * checks.check_interval_ms + CHECK_MARGIN_MS
    while asyncio.get_running_loop().time() < deadline_s:
        # The first check of a half comes `timeout_ms` after it, the next ones once per interval.
        first_ms = checks.timeout_ms + immunity_ms
        since_ns = max(began_ns + first_ms * 1_000_000, workload.last_check_ns())
        quiet = history.now_ns() - since_ns >= quiet_ms * 1_000_000
        if quiet and not workload.unsettled_parts():
            return
        await asyncio.sleep(POLL_S)


async def drain_all(
    context: WorkContext, workload: Workload, *, deadline_s: float
) -> list[DrainedQueue]:
    """Drain, let the consumer groups reach the ends, and drain anew if the ends moved meanwhile."""
    drained = await drain(context, workload.drain_slot, deadline_s)
    for _ in range(DRAIN_ROUNDS_MAX):
        ends = {item.queue: item.max_offset for item in drained}
        while not workload.readers_reached(ends):
            if asyncio.get_running_loop().time() >= deadline_s:
                return drained
            await asyncio.sleep(POLL_S)
        if await read_ends(context, workload.drain_slot, deadline_s) == ends:
            return drained
        drained = await drain(context, workload.drain_slot, deadline_s)
    # The ends still move: no queue counts as drained.
    return [
        DrainedQueue(
            queue=item.queue,
            min_offset=item.min_offset,
            max_offset=item.max_offset,
            drained=False,
        )
        for item in drained
    ]


async def read_system_queues(context: WorkContext, run: Path, slot: Slot) -> list[DrainedQueue]:
    """Read every queue that has a ConsumeQueue on some replica and is not one of the workload's."""
    known = set(context.all_queues)
    found: list[MessageQueue] = []
    for group in context.world.layout.groups:
        stores = run / "nodes" / group
        names = {
            (queue.parent.name, int(queue.name))
            for queue in stores.glob("*/consumequeue/*/*")
            if queue.name.isdecimal()
        }
        found += [MessageQueue(topic, group, number) for topic, number in sorted(names)]
    result = []
    async with make_tool(context, slot) as tool:
        for topic in sorted({queue.topic for queue in context.all_queues}):
            await tool.queues(topic)  # so that the client knows the groups' leaders
        for queue in found:
            if queue in known:
                continue
            low = await read_min_offset(tool, queue)
            try:
                high = await tool.max_offset(queue)
            except ClientError as error:
                raise SystemFailedError(
                    f"no maximum offset of {queue} after the heal: {error}"
                ) from error
            if low is None:
                raise SystemFailedError(f"no minimum offset of {queue} after the heal")
            result.append(DrainedQueue(queue=queue, min_offset=low, max_offset=high, drained=False))
    return result


async def await_idle(workload: Workload, history: HistoryWriter, *, seconds: float) -> None:
    """Wait until clients have completed what they have begun to send. What becomes of those that
    have not is said at `await_ended`."""
    began_ns = time.monotonic_ns()
    _drop(workload, await workload.idle(seconds), history, began_ns)


async def await_ended(
    working: asyncio.Task[None], workload: Workload, history: HistoryWriter, *, seconds: float
) -> None:
    """Wait for all clients to end. Of those that do not, it is recorded that they should have
    (rule M12), and they are cancelled.

    Such a client has a bug, or what it waits for has, or the laboratory (decision 32).
    """
    began_ns = time.monotonic_ns()
    done, _ = await asyncio.wait([working], timeout=seconds)
    if not done:
        _drop(workload, workload.working(), history, began_ns)
    await working


def _drop(workload: Workload, names: Sequence[str], history: HistoryWriter, began_ns: int) -> None:
    if not names:
        return
    now = time.monotonic_ns()
    answered = f"not within {(now - began_ns) / 1e9:.0f} s: {', '.join(names)}"
    history.record(
        "ask",
        "ok",
        t_invoke=began_ns,
        t_complete=now,
        process=f"laboratory.ask-{began_ns}",
        client="laboratory",
        key="whether clients end",
        ref="all",
        status=answered,
    )
    workload.drop(names)
