"""Single processes of a local cluster, by hand: start, stop, kill, pause, resume.

Place in the data path: `ledgermq cluster start|stop|kill|pause|resume` call it. A node that was
killed, by a person or by an experiment, comes back with its own store, configuration and ports.

Invariants: only processes of the cluster in the directory are touched (`chaos.cluster.processes`
checks both pid and start time); a command returns once its effect is seen, or raises.

Source: proc(5), the process states.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from typing import Final

from chaos.cluster.access import access_of
from chaos.cluster.broker_status import query_all
from chaos.cluster.cluster import (
    ClusterError,
    broker_process,
    load_layout,
    name_server_process,
    ports_of,
)
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.processes import ProcessTable, check_ports_free

__all__ = ["kill", "pause", "process_name", "resume", "start", "stop"]

_START_TIMEOUT_S: Final = 20.0
_STATE_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.02


def start(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Start a node that is down and wait until it answers; it outlives this command.

    Raises ClusterError, ProcessError (PortInUseError where one of its ports is in use).
    """
    directory = directory.resolve()
    layout = load_layout(directory)
    name = process_name(layout, node, group)
    table = ProcessTable(directory)
    running = table.find(name)
    if running is not None:
        raise ClusterError(f"{name} already runs as pid {running.pid}")
    check_ports_free(
        {port: who for port, (owner, who) in ports_of(layout).items() if owner == name}
    )
    is_broker = name in {place.name for place in layout.brokers}
    argv = (broker_process if is_broker else name_server_process)(directory, name)
    process = table.start(name, argv)
    if is_broker:
        asyncio.run(_await_answer(table, layout, layout.broker(name)))
    report(f"{name} started, pid {process.pid}")


def stop(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Send SIGTERM, and SIGKILL where that is not enough. Raises ClusterError, ProcessError."""
    table, name = _running(directory, node, group)
    killed = table.stop([name])
    report(f"{'killed' if killed else 'stopped'} {name}")


def kill(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Send SIGKILL. Raises ClusterError, ProcessError."""
    table, name = _running(directory, node, group)
    _signal(table, name, SIGKILL, {"gone"})
    report(f"killed {name}; `ledgermq cluster start` brings it back")


def pause(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Send SIGSTOP: it does nothing until `resume`. Raises ClusterError, ProcessError."""
    table, name = _running(directory, node, group)
    _signal(table, name, SIGSTOP, {"T"})
    report(f"paused {name}; `ledgermq cluster resume` lets it go on")


def resume(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Send SIGCONT; no effect on a node that is not paused. Raises ClusterError, ProcessError."""
    table, name = _running(directory, node, group)
    _signal(table, name, SIGCONT, {"S", "R", "D"})
    report(f"resumed {name}")


def process_name(layout: ClusterLayout, node: str, group: str | None) -> str:
    """Return the full process name for `n0`, `broker-a-n0` or `namesrv-0`. Raises ClusterError."""
    if group is not None and group not in layout.groups:
        raise ClusterError(f"there is no group {group}; there is {', '.join(layout.groups)}")
    places = [place for place in layout.brokers if group in {None, place.group}]
    servers = [server.name for server in layout.name_servers] if group is None else []
    known = [*(place.name for place in places), *servers]
    if node in known:
        return node
    found = [place.name for place in places if place.node == node]
    if not found:
        raise ClusterError(f"there is no node {node!r}; there is {', '.join(known)}")
    if len(found) > 1:
        raise ClusterError(f"{node} is a node of several groups, name one: {', '.join(found)}")
    return found[0]


def _running(directory: Path, node: str, group: str | None) -> tuple[ProcessTable, str]:
    directory = directory.resolve()
    name = process_name(load_layout(directory), node, group)
    table = ProcessTable(directory)
    if table.find(name) is None:
        raise ClusterError(f"{name} is not running")
    return table, name


def _signal(table: ProcessTable, name: str, number: Signals, states: set[str]) -> None:
    table.signal(name, number)
    deadline = time.monotonic() + _STATE_TIMEOUT_S
    while (state := table.state(name)) not in states:
        if time.monotonic() >= deadline:
            raise ClusterError(f"{name} is still in state {state} after {number.name}")
        time.sleep(_POLL_S)


async def _await_answer(table: ProcessTable, layout: ClusterLayout, place: BrokerPlace) -> None:
    """Wait until the broker answers; raise an error with its last lines where it ends before."""
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
    while not await query_all([place.address], access_of(layout)):
        if table.find(place.name) is None:
            raise ClusterError(f"{place.name} ended at its start:\n{table.output_tail(place.name)}")
        if asyncio.get_running_loop().time() >= deadline:
            raise ClusterError(f"{place.name} runs and does not answer on {place.address}")
        await asyncio.sleep(_POLL_S)
