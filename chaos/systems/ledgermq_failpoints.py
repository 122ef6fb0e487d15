"""Failpoints, wrong clocks and power failures of this project's own brokers.

Place in the data path: parts of `chaos.systems.ledgermq`, where the scenario starts its brokers
with failpoints; faults of `chaos.nemesis.failpoint` act on them.

Invariant: orders and counts go to a node's own address, past every proxy.

Source: `chaos.cluster.failpoints`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from chaos.cluster import failpoints
from chaos.cluster.failpoints import (
    Action,
    Arming,
    ClockSetting,
    FailpointError,
    disarm_at_start,
    lose_unsynced,
    put_clock_at_start,
)
from chaos.cluster.layout import ClusterLayout
from chaos.systems.base import PointAction, PointCounts, SystemFailedError
from raft.store.store_lock import StoreLockedError
from remoting.connections.rpc import RemotingClient

__all__ = ["LedgermqClocks", "LedgermqFailpoints", "lose_unsynced_writes"]


class LedgermqFailpoints:
    """The failpoints of one cluster. `client` returns the client that requests use."""

    def __init__(
        self, layout: Callable[[], ClusterLayout], client: Callable[[], RemotingClient]
    ) -> None:
        self._layout = layout
        self._client = client

    async def arm(self, node: str, point: str, action: PointAction) -> None:
        arming = Arming(
            point=point,
            action=Action(action.action),
            ms=action.ms,
            errno=action.errno,
            count=action.count,
            after=action.after,
            probability=action.share,
        )
        try:
            await failpoints.arm(self._client(), self._address(node), arming)
        except FailpointError as error:
            raise SystemFailedError(str(error)) from error

    async def disarm(self, node: str, point: str) -> None:
        try:
            await failpoints.disarm(self._client(), self._address(node), point)
        except FailpointError as error:
            raise SystemFailedError(str(error)) from error

    async def counts(self, node: str) -> Mapping[str, PointCounts] | None:
        try:
            report = await failpoints.report(self._client(), self._address(node))
        except FailpointError:
            return None  # gone, or held up: the process state tells which
        return {
            point.name: PointCounts(
                reached=point.hits,
                fired=point.fired,
                waiting=point.waiting,
                actions=frozenset(action.value for action in point.actions),
            )
            for point in report.points
        }

    def _address(self, node: str) -> str:
        return self._layout().broker(node).address


class LedgermqClocks:
    """The wall clocks of one cluster's brokers. A clock stays wrong over a restart."""

    def __init__(
        self,
        run: Path,
        layout: Callable[[], ClusterLayout],
        client: Callable[[], RemotingClient],
    ) -> None:
        self._run = run
        self._layout = layout
        self._client = client

    async def put(
        self, node: str, *, offset_ms: int, drift_ppm: int = 0, strobe_ms: int = 0
    ) -> None:
        setting = ClockSetting(offset_ms=offset_ms, drift_ppm=drift_ppm, strobe_ms=strobe_ms)
        is_right = not (offset_ms or drift_ppm or strobe_ms)
        try:
            put_clock_at_start(self._run, node, None if is_right else setting)
            address = self._layout().broker(node).address
            await failpoints.put_clock(self._client(), address, setting)
        except FailpointError as error:
            raise SystemFailedError(str(error)) from error

    async def offset_ms(self, node: str) -> int | None:
        address = self._layout().broker(node).address
        try:
            return (await failpoints.report(self._client(), address)).clock_off_ms
        except FailpointError:
            return None


async def lose_unsynced_writes(run: Path, store: Path, node: str, rng: random.Random) -> str:
    """Undo what no fsync covers of a killed broker's store; return what was lost, in words.

    What was armed for its next start is disarmed. Raises SystemFailedError.
    """
    try:
        disarm_at_start(run, node)
        lost = await asyncio.to_thread(lose_unsynced, store, rng)
    except (FailpointError, OSError, StoreLockedError) as error:
        raise SystemFailedError(f"no power failure of {node}: {error}") from error
    changed = ", ".join(f"{name} ({count})" for name, count in sorted(lost.changes.items()))
    return f"{node} lost {lost.count} changes that no fsync covered: {changed or 'none'}"
