"""The master of a group by hand: which node it is, where none is elected.

Place in the data path: `ledgermq cluster master` calls `change_master`; the laboratory's heal of a
lost disk takes the same steps (`chaos.systems.ledgermq_replacements`).

A group of the engines `async` and `sync` has the master that every node's configuration names. To
change it all nodes of the group are stopped, first the old master, so that it acknowledges nothing
more; then they are configured anew and started. Whoever does it chooses the slave with the longest
log: what the old master acknowledged beyond that is lost, and the old master's own log is cut to
the new one's when it comes back as a slave.

Invariants: no two nodes of a group run under different masters; a node that was down stays down,
configured for its next start.

Source: docs/decisions/0028-master-and-slaves.md; RocketMQ's brokerId and brokerRole.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.access import access_of
from chaos.cluster.broker_status import BrokerStatus, query_all
from chaos.cluster.cluster import (
    ClusterError,
    broker_process,
    load_layout,
    write_config,
    write_layout,
)
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.members import traces
from chaos.cluster.processes import ProcessTable

__all__ = ["change_master", "longest_log", "with_master"]

_START_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.05


def with_master(layout: ClusterLayout, group: str, node: str) -> ClusterLayout:
    """Return the layout in which `node` is the master of `group`."""
    return dataclasses.replace(layout, masters={**layout.masters, group: node})


def longest_log(
    places: Iterable[BrokerPlace], statuses: Mapping[str, BrokerStatus]
) -> BrokerPlace | None:
    """Return the place whose node has the longest log, the first of equals; None: none answers.

    `statuses`: answers by process name.
    """
    known = [place for place in places if place.name in statuses]
    return max(known, key=lambda place: statuses[place.name].last_index, default=None)


def change_master(
    directory: Path, node: str, *, group: str | None = None, report: Callable[[str], None]
) -> None:
    """Make a node its group's master, and restart the group's nodes that run.

    Raises ClusterError where the engine elects its masters or there is no such node, and what
    starting a process raises.
    """
    directory = directory.resolve()
    layout = load_layout(directory)
    if not layout.has_masters:
        raise ClusterError(
            f"the engine {layout.engine} elects its masters: `ledgermq cluster transfer` hands"
            " leadership over"
        )
    place = _place(layout, node, group)
    changed = with_master(layout, place.group, place.node)
    table = ProcessTable(directory)
    nodes = layout.groups[place.group]
    running = [each for each in nodes if table.find(each.name) is not None]
    former = layout.master_of(place.group)
    _warn_of_shorter_log(layout, place, report)
    for each in sorted(running, key=lambda one: one != former):
        table.stop([each.name])
    trace = traces(directory, layout)
    for each in nodes:
        write_config(directory, changed, each, {}, trace=trace)
    write_layout(directory, changed)
    for each in running:
        table.start(each.name, broker_process(directory, each.name))
    asyncio.run(_await_answers(table, changed, running))
    report(f"{place.node} is the master of {place.group}; {former.node} was")
    if place not in running:
        report(f"{place.name} is not running; `ledgermq cluster start` starts it")


def _place(layout: ClusterLayout, node: str, group: str | None) -> BrokerPlace:
    found = [
        place
        for place in layout.brokers
        if node in {place.node, place.name} and group in {None, place.group}
    ]
    if len(found) != 1:
        why = "is a node of several groups, name one" if found else "is no node of it"
        raise ClusterError(f"{node} {why}: {', '.join(p.name for p in found or layout.brokers)}")
    return found[0]


def _warn_of_shorter_log(
    layout: ClusterLayout, place: BrokerPlace, report: Callable[[str], None]
) -> None:
    """Report by how much another node's log is longer: that much is lost."""
    places = layout.groups[place.group]
    answers = asyncio.run(query_all([each.address for each in places], access_of(layout)))
    statuses = {each.name: answers[each.address] for each in places if each.address in answers}
    longest = longest_log(places, statuses)
    if longest is None or place.name not in statuses:
        return
    more = statuses[longest.name].last_index - statuses[place.name].last_index
    if more > 0:
        report(f"{longest.node} has {more} entries more than {place.node}: they are lost")


async def _await_answers(
    table: ProcessTable, layout: ClusterLayout, places: Iterable[BrokerPlace]
) -> None:
    """Wait until these brokers answer. Raises ClusterError."""
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
    left = list(places)
    while left:
        answers = await query_all([place.address for place in left], access_of(layout))
        left = [place for place in left if place.address not in answers]
        for place in left:
            if table.find(place.name) is None:
                output = table.output_tail(place.name)
                raise ClusterError(f"{place.name} ended at its start:\n{output}")
        if left and asyncio.get_running_loop().time() >= deadline:
            raise ClusterError(f"no answer from {', '.join(place.name for place in left)}")
        await asyncio.sleep(_POLL_S)
