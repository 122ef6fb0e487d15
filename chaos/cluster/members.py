"""Members of a local cluster's groups: list, add, promote, remove; transfer of leadership.

Place in the data path: `ledgermq cluster member` and `cluster transfer` call it. What changes a
group is requested from its leader (requests 60002 to 60004); what changes processes, configurations
and cluster.json is done here, before and after it:

    add      configuration and process first, then the learner is added under the identity of the
             store that the process made, then (`voter`) promoted once it has caught up
    remove   the group first, then the process stops and leaves cluster.json; its store stays

Invariants: a change that the group rejected leaves processes and files as they were; one step at a
time, each committed before the next is requested. From the request on, the node may be a member:
unless the group rejected it, its process goes on, whatever ends `add`. A member that cluster.json
lacks, after a crash between the two, is named by `list`, and taken up by another `add`. A node
whose disk was lost is replaced by `remove` and `add`: its new store has a new identity.

Source: Ongaro's dissertation, chapter 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.config import load_config
from chaos.cluster.access import access_of
from chaos.cluster.broker_status import BrokerStatus, query_all
from chaos.cluster.cluster import (
    ClusterError,
    broker_process,
    load_layout,
    write_config,
    write_layout,
)
from chaos.cluster.layout import HOST, BrokerPlace, ClusterLayout
from chaos.cluster.processes import PortInUseError, ProcessTable, check_ports_free, free_ports
from raft.log.disk import OsDisk
from raft.store.identity import IdentityFile
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = [
    "MemberInfo",
    "RejectedError",
    "add",
    "await_store",
    "change_member",
    "list_members",
    "promote",
    "read_members",
    "remove",
    "traces",
    "transfer",
    "transfer_leadership",
    "with_members",
]

_REQUEST_TIMEOUT_MS: Final = 10_000
_LEADER_TIMEOUT_S: Final = 15.0
_START_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.1
_NODE_NAME_LENGTH_MAX: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member as the group's leader knows it.

    Indexes and phase are the member's own report, None where it does not answer. `in_layout`:
    whether cluster.json has it; if not, an `add` was cut short, and another one takes it up.
    """

    group: str
    node: str
    kind: str  # "voter" or "learner"
    leads: bool
    address: str
    store_id: str
    applied_index: int | None
    phase: str | None
    in_layout: bool = True


class RejectedError(ClusterError):
    """The group certainly did not make the change."""


def list_members(directory: Path, *, group: str | None = None) -> list[MemberInfo]:
    """List the members. Raises ClusterError where there is no cluster, or a group has no leader."""
    layout = load_layout(directory)
    names = list(layout.groups) if group is None else [_group(layout, group)]
    return asyncio.run(read_members(layout, names))


def add(
    directory: Path,
    node: str,
    *,
    group: str | None = None,
    voter: bool = False,
    timeout_s: float = 900.0,
    report: Callable[[str], None],
) -> None:
    """Start a node and make it a learner; with `voter` a voter, once it has caught up.

    Takes up what an earlier call that was cut short has left: a process that runs, a member that
    cluster.json lacks. Raises ClusterError, and what starting a process raises.
    """
    layout = load_layout(directory)
    name = _group(layout, group)
    _check_name(node)
    if any(place.node == node for place in layout.groups[name]):
        raise ClusterError(f"{node} is a node of {name} already; `member remove` takes it out")
    asyncio.run(_require_raft(layout, name))
    directory = directory.resolve()
    table = ProcessTable(directory)
    rows = {row.node: row for row in asyncio.run(read_members(layout, [name]))}
    member = rows.get(node)
    running = table.find(_process_name(name, node)) is not None
    if member is not None or running:
        place = _former_place(directory, name, node)
    else:
        place = _new_place(directory, layout, name, node)
    grown = with_members(layout, (*layout.brokers, place))
    if not running:
        write_config(directory, grown, place, {}, trace=traces(directory, layout))
    with contextlib.ExitStack() as on_failure:
        if not running:
            # Nothing was requested yet: no majority counts on the node.
            on_failure.callback(table.stop, [place.name])
            table.start(place.name, broker_process(directory, place.name))
            report(f"{place.name} started, pid {_pid(table, place.name)}, at {place.address}")
        store_id = asyncio.run(await_store(table, grown, directory, place))
        if member is not None:
            _check_same_store(member, place, store_id)
        on_failure.pop_all()
    if member is None:
        fields = {"change": "add", "node": node, "address": place.raft_address}
        try:
            _request_learner(layout, name, fields | {"storeId": store_id}, report)
        except RejectedError:
            if not running:
                table.stop([place.name])
            raise
    # After the commit: a crash between the two leaves a member that cluster.json lacks.
    write_layout(directory, grown)
    kind = "learner" if member is None else member.kind
    report(f"{node} is a {kind} of {name}, store {store_id}")
    if voter and kind != "voter":
        promote(directory, node, group=name, timeout_s=timeout_s, report=report)


def _request_learner(
    layout: ClusterLayout, group: str, fields: dict[str, str], report: Callable[[str], None]
) -> None:
    """Request the addition; where that ends without an answer, report what is left."""
    is_known = False
    try:
        asyncio.run(change_member(layout, group, fields))
        is_known = True
    except RejectedError:
        is_known = True
        raise
    finally:
        if not is_known:
            node = fields["node"]
            report(
                f"whether {node} is a member of {group} is not known, so its process goes on: "
                f"`member list` tells, and `member add` takes it up"
            )


def promote(
    directory: Path,
    node: str,
    *,
    group: str | None = None,
    timeout_s: float = 900.0,
    report: Callable[[str], None],
) -> None:
    """Make a learner a voter, once it has caught up. Raises ClusterError."""
    layout = load_layout(directory)
    name = _group(layout, group)
    fields = {"change": "promote", "node": node}
    asyncio.run(change_member(layout, name, fields, busy_timeout_s=timeout_s))
    report(f"{node} is a voter of {name}")


def remove(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Remove a member and stop its process, if that runs. Raises ClusterError."""
    layout = load_layout(directory)
    name = _group(layout, group)
    asyncio.run(change_member(layout, name, {"change": "remove", "node": node}))
    report(f"{node} is no member of {name} any more")
    directory = directory.resolve()
    left = tuple(p for p in layout.brokers if (p.group, p.node) != (name, node))
    process = _process_name(name, node)  # cluster.json may lack it
    table = ProcessTable(directory)
    running = table.find(process) is not None
    table.stop([process])
    write_layout(directory, with_members(layout, left))
    if running:
        report(f"stopped {process}; its store stays in {directory / 'nodes' / name / node}")


def transfer(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Transfer leadership to a voter. Raises ClusterError."""
    layout = load_layout(directory)
    name = _group(layout, group)
    if node not in {place.node for place in layout.groups[name]}:
        raise ClusterError(f"{node} is no node of {name}")
    asyncio.run(transfer_leadership(layout, name, node))
    report(f"{node} leads {name}")


# Requests ------------------------------------------------------------------------------------


async def read_members(layout: ClusterLayout, names: list[str]) -> list[MemberInfo]:
    """Read the members of these groups from their leaders. Raises ClusterError."""
    rows: list[MemberInfo] = []
    for name in names:
        leader, statuses = await _await_leader(layout, name)
        try:
            answer = await _request(layout, leader.address, RequestCode.LEDGERMQ_MEMBERS, {})
        except RemotingError as error:
            raise ClusterError(f"{name}: its leader does not tell its members: {error}") from error
        members = json.loads(answer.body)
        for kind in ("voters", "learners"):
            for member in members[kind]:
                status = statuses.get(member["node"])
                rows.append(
                    MemberInfo(
                        group=name,
                        node=member["node"],
                        kind=kind.removesuffix("s"),
                        leads=member["node"] == leader.node,
                        address=member["address"],
                        store_id=member["store_id"],
                        applied_index=None if status is None else status.applied_index,
                        phase=None if status is None else status.phase,
                        in_layout=member["node"] in {p.node for p in layout.groups[name]},
                    )
                )
    return rows


async def _require_raft(layout: ClusterLayout, group: str) -> None:
    if layout.engine != "raft":
        raise ClusterError(f"the engine {layout.engine} of {group} can't change its members")
    await _await_leader(layout, group)


async def change_member(
    layout: ClusterLayout, group: str, fields: dict[str, str], *, busy_timeout_s: float = 30.0
) -> None:
    """Repeat the request, at whichever node leads by then, until it is done or can't be.

    A missing or unknown answer is resolved by reading the membership itself. Raises RejectedError
    where the change certainly was not made, and another ClusterError where that is not known.
    """
    deadline = asyncio.get_running_loop().time() + busy_timeout_s
    reason = ""
    doubt = False  # an attempt without an answer may still be carried out
    while True:
        rejected = False
        leader, _ = await _await_leader(layout, group)
        try:
            answer = await _request(
                layout, leader.address, RequestCode.LEDGERMQ_CHANGE_MEMBER, fields
            )
        except RemotingError as error:
            reason, doubt = str(error), True
        else:
            reason = answer.remark or f"code {answer.code}"
            if answer.code == ResponseCode.SUCCESS:
                return
            doubt = doubt or answer.code == ResponseCode.SYSTEM_ERROR
            rejected = answer.code == ResponseCode.INVALID_PARAMETER
        # In doubt a rejection may mean that an earlier attempt has made the change.
        if doubt and await _is_done(layout, group, fields):
            return
        if rejected:
            raise RejectedError(f"{group}: {reason}")
        if asyncio.get_running_loop().time() >= deadline:
            kind = ClusterError if doubt else RejectedError
            raise kind(f"{group}: not done within {busy_timeout_s:g} s: {reason}")
        await asyncio.sleep(_POLL_S)


async def _is_done(layout: ClusterLayout, group: str, fields: dict[str, str]) -> bool:
    """Return whether the membership shows the change; False, too, where it can't be read now."""
    try:
        members = {row.node: row for row in await read_members(layout, [group])}
    except ClusterError:
        return False  # the caller asks again, or says that it does not know
    row = members.get(fields["node"])
    match fields["change"]:
        case "remove":
            return row is None
        case "promote":
            return row is not None and row.kind == "voter"
        case _:
            return row is not None and row.store_id == fields["storeId"]


async def transfer_leadership(layout: ClusterLayout, group: str, node: str) -> None:
    """Repeat the transfer until the node leads; a slow candidate or a busy leader is retried."""
    deadline = asyncio.get_running_loop().time() + _LEADER_TIMEOUT_S
    reason = ""
    while True:
        leader, _ = await _await_leader(layout, group)
        if leader.node == node:
            return
        if asyncio.get_running_loop().time() >= deadline:
            raise ClusterError(f"{group}: {leader.node} leads, not {node}: {reason}")
        try:
            answer = await _request(
                layout, leader.address, RequestCode.LEDGERMQ_TRANSFER, {"node": node}
            )
        except RemotingError as error:
            reason = str(error)
        else:
            reason = answer.remark or f"code {answer.code}"
            if answer.code == ResponseCode.INVALID_PARAMETER:
                raise ClusterError(f"{group}: {reason}")
        await asyncio.sleep(_POLL_S)


async def _await_leader(
    layout: ClusterLayout, group: str
) -> tuple[BrokerPlace, dict[str, BrokerStatus]]:
    """Wait for a ready leader; return it and the status of each node that answers, by name."""
    places = {place.address: place for place in layout.groups[group]}
    deadline = asyncio.get_running_loop().time() + _LEADER_TIMEOUT_S
    while True:
        answers = await query_all(list(places), access_of(layout))
        ready = [(status.term, at) for at, status in answers.items() if status.ready]
        if ready:
            by_node = {places[at].node: status for at, status in answers.items()}
            return places[max(ready)[1]], by_node
        if asyncio.get_running_loop().time() >= deadline:
            raise ClusterError(f"{group} has no leader: is it running?")
        await asyncio.sleep(_POLL_S)


async def _request(
    layout: ClusterLayout, address: str, code: RequestCode, fields: dict[str, str]
) -> RemotingCommand:
    client = access_of(layout).client()
    try:
        command = RemotingCommand(code=code, ext_fields=fields)
        return await client.request(address, command, _REQUEST_TIMEOUT_MS)
    finally:
        await client.close()


async def await_store(
    table: ProcessTable, layout: ClusterLayout, directory: Path, place: BrokerPlace
) -> str:
    """Wait for the identity of the store that the started process made, or had."""
    disk = OsDisk(layout.store_directory(directory, place))
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
    while True:
        identity = IdentityFile(disk).peek()
        answers = await query_all([place.address], access_of(layout))
        if identity is not None and answers:
            return identity.store_id
        if table.find(place.name) is None:
            raise ClusterError(f"{place.name} ended at its start:\n{table.output_tail(place.name)}")
        if asyncio.get_running_loop().time() >= deadline:
            raise ClusterError(f"{place.name} did not come up within {_START_TIMEOUT_S:g} s")
        await asyncio.sleep(_POLL_S)


# Files ---------------------------------------------------------------------------------------


def _group(layout: ClusterLayout, group: str | None) -> str:
    names = list(layout.groups)
    if group is None:
        if len(names) == 1:
            return names[0]
        raise ClusterError(f"there are several groups, name one: {', '.join(names)}")
    if group not in names:
        raise ClusterError(f"there is no group {group}; there is {', '.join(names)}")
    return group


def _check_name(node: str) -> None:
    legal = node.isascii() and node.replace("-", "").replace("_", "").isalnum()
    if not legal or len(node) > _NODE_NAME_LENGTH_MAX:
        raise ClusterError(f"{node!r} is no name of a node: letters, digits, - and _")


def _process_name(group: str, node: str) -> str:
    return BrokerPlace(group=group, node=node, address="", raft_address="").name


def _former_place(directory: Path, group: str, node: str) -> BrokerPlace:
    """Return the place that the node's configuration names. Raises ClusterError without one."""
    name = _process_name(group, node)
    try:
        config = load_config(directory / "config" / f"{name}.toml")
    except FileNotFoundError as error:
        raise ClusterError(
            f"{node} is there already, and no configuration says where: `member remove` takes it"
            " out"
        ) from error
    return BrokerPlace(
        group=group,
        node=node,
        address=config.listen,
        raft_address=config.raft_listen,
    )


def _new_place(directory: Path, layout: ClusterLayout, group: str, node: str) -> BrokerPlace:
    """Return the former place of the node, if the ports are free; else one on free ports."""
    name = _process_name(group, node)
    if (directory / "config" / f"{name}.toml").exists():
        place = _former_place(directory, group, node)
        ports = [int(a.rpartition(":")[2]) for a in (place.address, place.raft_address)]
        try:
            check_ports_free(dict.fromkeys(ports, name))
        except PortInUseError:
            pass  # free ones are found below
        else:
            return place
    remoting, raft = free_ports(2, random.Random(secrets.randbits(64)))
    return BrokerPlace(
        group=group, node=node, address=f"{HOST}:{remoting}", raft_address=f"{HOST}:{raft}"
    )


def _check_same_store(member: MemberInfo, place: BrokerPlace, store_id: str) -> None:
    """Raise ClusterError where what is here is not what the group has added."""
    if (member.address, member.store_id) != (place.raft_address, store_id):
        raise ClusterError(
            f"{member.node} is a member at {member.address} with store {member.store_id}, and here"
            f" is {place.raft_address} with store {store_id}: `member remove` takes it out"
        )


def with_members(layout: ClusterLayout, brokers: tuple[BrokerPlace, ...]) -> ClusterLayout:
    """Return the layout with these brokers, marked as changed since it was laid out."""
    return dataclasses.replace(layout, brokers=brokers, members_changed=True)


def traces(directory: Path, layout: ClusterLayout) -> bool:
    """Return whether this cluster was started with Raft traces."""
    return load_config(directory / "config" / f"{layout.brokers[0].name}.toml").trace


def _pid(table: ProcessTable, name: str) -> int | None:
    process = table.find(name)
    return None if process is None else process.pid
