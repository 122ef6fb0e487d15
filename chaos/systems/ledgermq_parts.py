"""Stores, members and settings of this project's brokers, as faults change them.

Place in the data path: parts of `chaos.systems.ledgermq`. Members are changed as a person changes
them (`chaos.cluster.members`): a node is started on an empty store in a spare place, added as a
learner, then promoted; one that is removed leaves its place to the next that is added.

Invariants: cluster.json and the layout of the system follow what the group has committed; a process
that is started here ends with this one, like all of the system's; settings go to the broker's own
address, past every proxy.

Source: docs/decisions/0007-store-identity.md; RocketMQ's UPDATE_BROKER_CONFIG.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from chaos.cluster.cluster import ClusterError, broker_process, write_config, write_layout
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.members import (
    RejectedError,
    await_store,
    change_member,
    read_members,
    transfer_leadership,
    with_members,
)
from chaos.cluster.processes import ProcessError, ProcessTable
from chaos.systems.base import SystemFailedError
from chaos.systems.ledgermq_failpoints import lose_unsynced_writes
from chaos.systems.store_files import DirectoryFiles
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.java_properties import (
    JavaPropertiesError,
    parse_java_properties,
    properties_lines,
)

__all__ = [
    "Inside",
    "LedgermqMembers",
    "LedgermqSettings",
    "LedgermqStores",
    "SharedLayout",
    "on_this_host",
]

STOP_TIMEOUT_S: Final = 15.0
PROMOTE_TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_MS: Final = 2_000


# Returns the command line that becomes the given one in the place of that process.
Inside: TypeAlias = Callable[[str, list[str]], list[str]]


def on_this_host(_: str, argv: list[str]) -> list[str]:
    """Return the command line as it is."""
    return argv


class SharedLayout:
    """The layout as it is now, and what each process dials; the parts of one system share it."""

    def __init__(self, run: Path, layout: ClusterLayout, *, traces: bool, inside: Inside) -> None:
        self.traces: Final = traces
        self.inside: Final = inside
        self.run: Final = run
        self.now = layout
        self.dial: Mapping[str, Mapping[str, str]] = {}


class LedgermqStores:
    """The stores below the run directory."""

    def __init__(self, shared: SharedLayout, *, failpoints: bool) -> None:
        self._shared = shared
        self._failpoints = failpoints
        self._rng = random.Random(secrets.randbits(64))  # what a disk loses is nobody's choice

    def files(self, node: str) -> DirectoryFiles:
        layout = self._shared.now
        return DirectoryFiles(layout.store_directory(self._shared.run, layout.broker(node)))

    async def lose_unsynced(self, node: str) -> str | None:
        """Return None without failpoints: only their disk knows what no fsync covered."""
        if not self._failpoints:
            return None
        shared = self._shared
        store = shared.now.store_directory(shared.run, shared.now.broker(node))
        return await lose_unsynced_writes(shared.run, store, node, self._rng)


class LedgermqMembers:
    """Changes of members, one at a time."""

    def __init__(self, shared: SharedLayout, table: ProcessTable) -> None:
        self._shared = shared
        self._table = table
        self._stores = LedgermqStores(shared, failpoints=False)
        self._one_at_a_time = asyncio.Lock()

    async def add(self, group: str, *, voter: bool) -> str:
        async with self._one_at_a_time:
            try:
                return await self._add(group, voter=voter)
            except (ClusterError, ProcessError, RemotingError) as error:
                raise SystemFailedError(f"no member was added to {group}: {error}") from error

    async def _add(self, group: str, *, voter: bool) -> str:
        layout, run = self._shared.now, self._shared.run
        place = next((place for place in layout.spares if place.group == group), None)
        if place is None:
            raise SystemFailedError(
                f"{group} has no spare place: cluster.spares = 1 in the scenario makes one"
            )
        self._stores.files(place.name).restore_all({})
        left = tuple(spare for spare in layout.spares if spare != place)
        grown = dataclasses.replace(with_members(layout, (*layout.brokers, place)), spares=left)
        write_config(
            run, grown, place, self._shared.dial.get(place.name, {}), trace=self._shared.traces
        )
        argv = self._shared.inside(place.name, broker_process(run, place.name))
        self._table.start(place.name, argv)
        try:
            store_id = await await_store(self._table, grown, run, place)
            fields = {"change": "add", "node": place.node, "address": place.raft_address}
            await change_member(layout, group, fields | {"storeId": store_id})
        except RejectedError:
            await self._stop(place)
            raise
        self._take_over(grown)
        if voter:
            fields = {"change": "promote", "node": place.node}
            await change_member(grown, group, fields, busy_timeout_s=PROMOTE_TIMEOUT_S)
        return place.name

    async def promote(self, node: str) -> None:
        place = self._shared.now.broker(node)
        fields = {"change": "promote", "node": place.node}
        async with self._one_at_a_time:
            try:
                await change_member(
                    self._shared.now, place.group, fields, busy_timeout_s=PROMOTE_TIMEOUT_S
                )
            except ClusterError as error:
                raise SystemFailedError(f"{node} was not promoted: {error}") from error

    async def remove(self, node: str) -> None:
        layout = self._shared.now
        place = layout.broker(node)
        async with self._one_at_a_time:
            try:
                fields = {"change": "remove", "node": place.node}
                await change_member(layout, place.group, fields)
                await self._stop(place)
            except (ClusterError, ProcessError) as error:
                raise SystemFailedError(f"{node} was not removed: {error}") from error
            left = tuple(broker for broker in layout.brokers if broker != place)
            # First, so that the next that is added takes the place that became free last.
            spares = (place, *layout.spares)
            self._take_over(dataclasses.replace(with_members(layout, left), spares=spares))

    async def transfer(self, group: str, node: str) -> None:
        try:
            await transfer_leadership(self._shared.now, group, self._shared.now.broker(node).node)
        except ClusterError as error:
            raise SystemFailedError(f"leadership was not transferred: {error}") from error

    async def members(self, group: str) -> Sequence[str]:
        try:
            rows = await read_members(self._shared.now, [group])
        except ClusterError as error:
            raise SystemFailedError(f"the members can't be read: {error}") from error
        return [f"{row.group}-{row.node}" for row in rows if row.kind == "voter"]

    async def learners(self, group: str) -> Sequence[str]:
        try:
            rows = await read_members(self._shared.now, [group])
        except ClusterError as error:
            raise SystemFailedError(f"the members can't be read: {error}") from error
        return [f"{row.group}-{row.node}" for row in rows if row.kind == "learner"]

    async def _stop(self, place: BrokerPlace) -> None:
        await asyncio.to_thread(self._table.stop, [place.name], timeout_s=STOP_TIMEOUT_S)

    def _take_over(self, layout: ClusterLayout) -> None:
        self._shared.now = layout
        write_layout(self._shared.run, layout)


class LedgermqSettings:
    """Settings under RocketMQ's names while a broker runs, under the file's at its next start."""

    def __init__(self, shared: SharedLayout, client: Callable[[], RemotingClient]) -> None:
        self._shared = shared
        self._client = client

    async def update(self, node: str, values: Mapping[str, str]) -> None:
        body = properties_lines(values).encode()
        answer = await self._request(node, RequestCode.UPDATE_BROKER_CONFIG, body)
        if answer is None:
            raise SystemFailedError(f"{node} did not answer")
        if answer.code != ResponseCode.SUCCESS:
            raise SystemFailedError(f"{node}: {answer.remark or answer.code}")

    async def read(self, node: str) -> Mapping[str, str] | None:
        answer = await self._request(node, RequestCode.GET_BROKER_CONFIG, b"")
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        try:
            return parse_java_properties(answer.body.decode())
        except (JavaPropertiesError, UnicodeDecodeError) as error:
            raise SystemFailedError(f"{node}: its settings are no properties: {error}") from error

    def at_next_start(self, node: str, values: Mapping[str, int | bool | str] | None) -> None:
        layout = self._shared.now
        settings = {**layout.broker_settings, **(values or {})}
        write_config(
            self._shared.run,
            dataclasses.replace(layout, broker_settings=settings),
            layout.broker(node),
            self._shared.dial.get(node, {}),
            trace=self._shared.traces,
        )

    async def _request(self, node: str, code: RequestCode, body: bytes) -> RemotingCommand | None:
        address = self._shared.now.broker(node).address
        command = RemotingCommand(code=code, body=body)
        try:
            return await self._client().request(address, command, REQUEST_TIMEOUT_MS)
        except RemotingError:
            return None
