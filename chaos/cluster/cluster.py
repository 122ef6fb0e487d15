"""A person's local cluster: `ledgermq cluster up`, `status` and `down`.

Place in the data path: `chaos.cluster.layout` assigns names and ports, this starts the processes,
queries and stops them. The same directory layout is used by the laboratory's local world, so
`status` works on a run directory too while its experiment runs.

    DIR/cluster.json               the layout, written by `up`
    DIR/config/<process>.toml      one per broker and name server
    DIR/secrets/<group>            shared secret of a group, mode 0600
    DIR/pids/<process>.json        while started
    DIR/output/<process>.log       what it printed
    DIR/failpoints/<process>.json  where brokers have failpoints: what is armed at a start
    DIR/faults/<fault>.json        a fault that was injected by hand
    DIR/nodes/<group>/<node>/      its store
    DIR/nodes/<name server>.kv.json  its key-value configuration

Invariants: `down` stops what `up` started, and nothing else; a process that dies takes none with
it; a store is never removed here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster.access import access_of
from chaos.cluster.broker_status import BrokerStatus, query_all
from chaos.cluster.held_faults import end_faults
from chaos.cluster.layout import (
    BrokerPlace,
    ClusterLayout,
    LayoutError,
    PortPlan,
    broker_config_toml,
    fixed_ports,
    lay_out,
    layout_from_json,
    layout_to_json,
    name_server_config_toml,
)
from chaos.cluster.processes import (
    ProcessError,
    ProcessTable,
    RunningProcess,
    check_ports_free,
    free_ports,
    ledgermq_argv,
)
from chaos.cluster.stop_signals import StopSignals

__all__ = [
    "FAILPOINTS",
    "ClusterError",
    "ClusterStatus",
    "NodeStatus",
    "await_ready",
    "broker_process",
    "down",
    "load_layout",
    "name_server_process",
    "plan_ports",
    "ports_of",
    "start_all",
    "status",
    "up",
    "write_config",
    "write_directory",
    "write_layout",
]

FAILPOINTS = "failpoints"
READY_TIMEOUT_S = 30.0
READY_POLL_S = 0.05
WATCH_POLL_S = 0.25


class ClusterError(Exception):
    """The cluster could not be started, found or stopped; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The status of one node.

    `pid` None: not running. `role` "down": not running, "unreachable": no answer; then term and
    indexes are None. "learner": a follower that counts in no majority.
    """

    group: str
    name: str
    pid: int | None
    address: str
    role: str
    term: int | None
    last_index: int | None
    commit_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    name_servers: tuple[str, ...]
    nodes: tuple[NodeStatus, ...]

    def to_json(self) -> str:
        return json.dumps(
            {
                "name_servers": list(self.name_servers),
                "nodes": [
                    {name: getattr(node, name) for name in NodeStatus.__slots__}
                    for node in self.nodes
                ],
            },
            indent=2,
        )


def up(
    directory: Path,
    *,
    groups: int = 1,
    replicas: int = 3,
    engine: str = "raft",
    profile: str = "lan",
    name_servers: int = 2,
    namesrv_port: int = 9876,
    base_port: int = 10911,
    detach: bool = False,
    trace: bool = False,
    failpoints: bool = False,
    settings: Mapping[str, int | bool | str] | None = None,
    report: Callable[[str], None] | None = None,
) -> ClusterStatus:
    """Start a cluster in `directory` and wait until every group has a ready leader.

    A port of 0 picks free ones. Without `detach` it stays until SIGINT, SIGTERM or SIGHUP and then
    stops the cluster, which is killed where this process is. `settings` are the brokers'
    (docs/SETTINGS.md); `failpoints`: brokers can be made to fail, now and whenever this directory's
    cluster is started again (`chaos.cluster.failpoints`); `report` takes each line for the person
    (default: print). Raises ClusterError, LayoutError or PortInUseError, with all stopped again.
    """
    print_line = report or _print
    ports = plan_ports(
        groups=groups,
        replicas=replicas,
        name_servers=name_servers,
        namesrv_port=namesrv_port,
        base_port=base_port,
    )
    layout = lay_out(
        groups=groups,
        replicas=replicas,
        name_servers=name_servers,
        ports=ports,
        engine=engine,
        raft_settings={"profile": profile},
        broker_settings=settings,
    )
    directory = directory.resolve()
    layout = _with_changes_by_hand(directory, layout)
    _check_same_shape(directory, layout)
    table = ProcessTable(directory, ends_with_us=not detach)
    _check_none_runs(directory, table, layout)
    check_ports_free({port: who for port, (_, who) in ports_of(layout).items()})
    write_directory(directory, layout, trace=trace, failpoints=failpoints)
    leaves_running = False
    with StopSignals() as stopped:
        try:
            start_all(table, directory, layout, stopped.check)
            asyncio.run(await_ready(table, layout, stopped.check))
            result = status(directory)
            for line in _lines(result):
                print_line(line)
            if not detach:
                _watch(table, layout, stopped, print_line)
            leaves_running = detach
        finally:
            if not leaves_running:
                table.stop(table.names())
    if not leaves_running:
        print_line(
            f"stopped: no process is left; the stores stay in {directory / 'nodes'}, and"
            f" `ledgermq cluster up {shlex.quote(str(directory))}` with the same options goes on"
            " with them"
        )
    return result


def status(directory: Path) -> ClusterStatus:
    """Query every node of the cluster in `directory`. Raises ClusterError where there is none."""
    layout = load_layout(directory)
    table = ProcessTable(directory)
    addresses = [place.address for place in layout.brokers]
    answers = asyncio.run(query_all(addresses, access_of(layout)))
    nodes = []
    for place in layout.brokers:
        process = table.find(place.name)
        answer = answers.get(place.address)
        nodes.append(_node_status(place.group, place.node, place.address, process, answer))
    return ClusterStatus(name_servers=layout.name_server_addresses, nodes=tuple(nodes))


def down(directory: Path) -> list[str]:
    """Stop what `up` started in `directory`; return the names of the stopped processes.

    Faults that were injected by hand are healed first, so that none of them starts a broker later.
    Brokers go before name servers, so that they can unregister. Raises ClusterError where
    `directory` holds no cluster.
    """
    layout = load_layout(directory)
    table = ProcessTable(directory)
    brokers = {place.name for place in layout.brokers}
    names = table.names()
    stopped = [name for name in names if table.find(name) is not None]
    try:
        end_faults(directory)
        table.stop([name for name in names if name in brokers])
        table.stop([name for name in names if name not in brokers])
    except ProcessError as error:
        raise ClusterError(str(error)) from error
    return stopped


def plan_ports(
    *, groups: int, replicas: int, name_servers: int, namesrv_port: int, base_port: int
) -> PortPlan:
    """Return `fixed_ports`, with free ones where 0 is given."""
    rng = random.Random(secrets.randbits(64))
    fixed = fixed_ports(
        groups=groups,
        replicas=replicas,
        name_servers=name_servers,
        name_server_port=namesrv_port or 1,
        base_port=base_port or 1 + name_servers,
    )
    brokers = fixed.brokers
    free = free_ports(name_servers + 2 * len(brokers), rng)
    picked_brokers = tuple(zip(free[name_servers::2], free[name_servers + 1 :: 2], strict=True))
    return PortPlan(
        name_servers=fixed.name_servers if namesrv_port else tuple(free[:name_servers]),
        brokers=brokers if base_port else picked_brokers,
    )


def load_layout(directory: Path) -> ClusterLayout:
    """Read the layout. Raises ClusterError where `directory` holds no readable cluster.json."""
    try:
        return layout_from_json((directory / "cluster.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ClusterError(f"{directory} holds no cluster (no cluster.json)") from error
    except (OSError, UnicodeDecodeError, LayoutError) as error:
        raise ClusterError(f"{directory}: {error}") from error


def write_directory(
    directory: Path,
    layout: ClusterLayout,
    dial: Mapping[str, Mapping[str, str]] | None = None,
    *,
    trace: bool = True,
    failpoints: bool = False,
) -> None:
    """Write cluster.json, secrets and configurations; make the folder that gives brokers
    failpoints.

    `dial`: by process name, table address = the address really dialled. `trace`: they grow.
    """
    folders = ("config", "secrets", "nodes", "output", "pids")
    for name in (*folders, FAILPOINTS) if failpoints else folders:
        (directory / name).mkdir(parents=True, exist_ok=True)
    write_layout(directory, layout)
    for group in layout.groups:
        _write_secret(directory / "secrets" / group)
    for server in layout.name_servers:
        text = name_server_config_toml(
            layout, server, kv_config=directory / "nodes" / f"{server.name}.kv.json"
        )
        (directory / "config" / f"{server.name}.toml").write_text(text, encoding="utf-8")
    for place in layout.brokers:
        write_config(directory, layout, place, (dial or {}).get(place.name, {}), trace=trace)


def ports_of(layout: ClusterLayout) -> dict[int, tuple[str, str]]:
    """Return every port of the cluster: the process that needs it, and its name with purpose."""
    owners = {_port(server.address): (server.name, server.name) for server in layout.name_servers}
    for place in layout.brokers:
        owners[_port(place.address)] = (place.name, f"{place.name} (remoting)")
        owners[_port(place.raft_address)] = (place.name, f"{place.name} (Raft)")
    return owners


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def write_layout(directory: Path, layout: ClusterLayout) -> None:
    """Write cluster.json alone."""
    draft = directory / "cluster.json.tmp"
    draft.write_text(layout_to_json(layout), encoding="utf-8")
    draft.replace(directory / "cluster.json")


def write_config(
    directory: Path,
    layout: ClusterLayout,
    place: BrokerPlace,
    dial: Mapping[str, str],
    *,
    trace: bool,
) -> None:
    """Write one broker's configuration, and create its store's directory."""
    store = layout.store_directory(directory, place)
    store.mkdir(parents=True, exist_ok=True)
    text = broker_config_toml(
        layout,
        place,
        store=store,
        secret_file=directory / "secrets" / place.group,
        dial=dial,
        trace=trace,
    )
    (directory / "config" / f"{place.name}.toml").write_text(text, encoding="utf-8")


def broker_process(directory: Path, name: str) -> list[str]:
    """Return the command line of the broker of that process name, with its failpoints if the
    cluster has them."""
    argv = ledgermq_argv("broker", "--config", str(directory / "config" / f"{name}.toml"))
    folder = directory / FAILPOINTS
    if folder.is_dir():
        argv += ["--failpoints", "--failpoints-armed", str(folder / f"{name}.json")]
    return argv


def name_server_process(directory: Path, name: str) -> list[str]:
    """Return the command line of the name server of that process name."""
    return ledgermq_argv("namesrv", "--config", str(directory / "config" / f"{name}.toml"))


def _write_secret(path: Path) -> None:
    """Write a new secret; an existing one is kept, as the group's stores outlive `down` too."""
    if path.exists():
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32))


def _nothing() -> None:
    """Do nothing, as the `check` of callers that are not to be stopped."""


def start_all(
    table: ProcessTable,
    directory: Path,
    layout: ClusterLayout,
    check: Callable[[], None] = _nothing,
) -> None:
    """Start every process without waiting. `check` is called before each, and may raise."""
    for server in layout.name_servers:
        check()
        table.start(server.name, name_server_process(directory, server.name))
    for place in layout.brokers:
        check()
        table.start(place.name, broker_process(directory, place.name))


async def await_ready(
    table: ProcessTable, layout: ClusterLayout, check: Callable[[], None] = _nothing
) -> None:
    """Wait until each node answers and each group has a ready leader. Raises ClusterError.

    `check` is called meanwhile, and may raise.
    """
    addresses = [place.address for place in layout.brokers]
    access = access_of(layout)
    deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
    while True:
        check()
        for name in [*(s.name for s in layout.name_servers), *(b.name for b in layout.brokers)]:
            if table.find(name) is None:
                raise ClusterError(f"{name} ended at its start:\n{table.output_tail(name)}")
        answers = await query_all(addresses, access)
        led = {answer.group for answer in answers.values() if answer.ready}
        if len(answers) == len(addresses) and led == set(layout.groups):
            return
        if asyncio.get_running_loop().time() >= deadline:
            missing = [address for address in addresses if address not in answers]
            raise ClusterError(
                f"not ready after {READY_TIMEOUT_S:.0f} s: no answer from {missing or 'none'},"
                f" no leader in {sorted(set(layout.groups) - led) or 'none'}{access.hint}"
            )
        await asyncio.sleep(READY_POLL_S)


def _with_changes_by_hand(directory: Path, layout: ClusterLayout) -> ClusterLayout:
    """Return the old layout if its members have changed: no numbers lead to it. Masters stay."""
    if not (directory / "cluster.json").exists():
        return layout
    old = load_layout(directory)
    if (old.engine, list(old.groups)) != (layout.engine, list(layout.groups)):
        return layout
    return old if old.members_changed else dataclasses.replace(layout, masters=old.masters)


def _check_none_runs(directory: Path, table: ProcessTable, layout: ClusterLayout) -> None:
    running = [name for name in table.names() if table.find(name) is not None]
    if not running:
        return
    own = [server.name for server in layout.name_servers] + [b.name for b in layout.brokers]
    down_ones = [name for name in own if name not in running]
    hint = f"; down: {', '.join(down_ones)} (`ledgermq cluster start` starts a node)"
    raise ClusterError(
        f"a cluster already runs in {directory}: {', '.join(running)}{hint if down_ones else ''}"
    )


def _check_same_shape(directory: Path, layout: ClusterLayout) -> None:
    """Check that the layout has the store's group, voters and engine; others are an error."""
    if not (directory / "cluster.json").exists():
        return
    old = load_layout(directory)
    shape = [(place.group, place.node) for place in old.brokers]
    if shape != [(place.group, place.node) for place in layout.brokers]:
        raise ClusterError(
            f"{directory} holds a cluster of {len(old.groups)} group(s) and {len(shape)} node(s);"
            " choose the same numbers or another directory"
        )
    if old.engine != layout.engine:
        raise ClusterError(
            f"{directory} holds a cluster on the engine {old.engine}, whose stores"
            f" {layout.engine} can't read: choose another directory"
        )


def _node_status(
    group: str, node: str, address: str, process: RunningProcess | None, answer: BrokerStatus | None
) -> NodeStatus:
    pid = None if process is None else process.pid
    if answer is None:
        return NodeStatus(
            group=group,
            name=node,
            pid=pid,
            address=address,
            role="down" if pid is None else "unreachable",
            term=None,
            last_index=None,
            commit_index=None,
        )
    return NodeStatus(
        group=group,
        name=node,
        pid=pid,
        address=address,
        role="learner" if node in answer.learners else answer.role,
        term=answer.term,
        last_index=answer.last_index,
        commit_index=answer.commit_index,
    )


def _lines(result: ClusterStatus) -> list[str]:
    lines = [f"name servers: {';'.join(result.name_servers)}"]
    lines += [
        f"{node.group}/{node.name} pid {node.pid} at {node.address}: {node.role}, term {node.term}"
        for node in result.nodes
    ]
    return lines


def _watch(
    table: ProcessTable,
    layout: ClusterLayout,
    stopped: StopSignals,
    report: Callable[[str], None],
) -> None:
    """Wait for a stop signal; report once each process that ends meanwhile."""
    alive = {server.name for server in layout.name_servers}
    alive |= {broker.name for broker in layout.brokers}
    while not stopped.received:
        for name in sorted(alive):
            if table.find(name) is None:
                alive.discard(name)
                report(f"{name} ended (exit code {table.exit_code(name)})")
        time.sleep(WATCH_POLL_S)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
