"""The commands of a local cluster: up, status, down, single nodes, members.

Place in the data path: part of `ledgermq.cli`; each command calls `chaos.cluster.cluster`,
`chaos.cluster.nodes` or `chaos.cluster.members`. An error that a person can fix is one line on
stderr.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ledgermq.endings import stop_with
from ledgermq.exit_codes import EXIT_INTERRUPTED, EXIT_USAGE
from ledgermq.options import (
    Directory,
    Group,
    Json,
    Node,
    Patience,
    Process,
    Settings,
    settings_of,
)

__all__ = ["cluster_app"]

cluster_app = typer.Typer(help="A local cluster.", no_args_is_help=True)
member_app = typer.Typer(help="Members of a group.", no_args_is_help=True)
cluster_app.add_typer(member_app, name="member")


@cluster_app.command("up")
def cluster_up(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    groups: Annotated[int, typer.Option(min=1)] = 1,
    replicas: Annotated[int, typer.Option(min=1, max=7)] = 3,
    engine: Annotated[
        str,
        typer.Option(help="raft, pysyncobj, async or sync (async-flush, sync-flush)."),
    ] = "raft",
    flush: Annotated[
        str | None, typer.Option(help="Of async and sync: async (default) or sync.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Times of the Raft groups: lan or fast.")] = "lan",
    name_servers: Annotated[int, typer.Option(min=1)] = 2,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535)] = 9876,
    base_port: Annotated[int, typer.Option(min=0, max=65535)] = 10911,
    detach: Annotated[bool, typer.Option("--detach", help="Return once it serves.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Write Raft traces, which grow.")] = False,
    failpoints: Annotated[
        bool, typer.Option("--failpoints", help="Brokers can be made to fail by request.")
    ] = False,
    setting: Settings = None,
) -> None:
    """Start a local cluster in DIR."""
    from chaos.cluster import cluster  # noqa: PLC0415
    from chaos.cluster.layout import LayoutError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415

    try:
        settings = settings_of(setting or [])
    except ValueError as error:
        stop_with(error, EXIT_USAGE)
    if flush is not None:
        settings = {**settings, "flush": flush}
    try:
        cluster.up(
            directory,
            groups=groups,
            replicas=replicas,
            engine=engine,
            profile=profile,
            name_servers=name_servers,
            namesrv_port=namesrv_port,
            base_port=base_port,
            detach=detach,
            trace=trace,
            failpoints=failpoints,
            settings=settings,
        )
    except LayoutError as error:
        stop_with(error, EXIT_USAGE)
    except (cluster.ClusterError, ProcessError, OSError) as error:
        stop_with(error)
    except KeyboardInterrupt:  # while it started
        stop_with(f"interrupted: no process is left; {directory} stays", EXIT_INTERRUPTED)


@cluster_app.command("status")
def cluster_status(
    directory: Annotated[Path, typer.Argument(metavar="DIR")], as_json: Json = False
) -> None:
    """Show the name servers and every node of the cluster in DIR."""
    from chaos.cluster import cluster  # noqa: PLC0415
    from chaos.cluster.layout import LayoutError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415

    try:
        status = cluster.status(directory)
    except (cluster.ClusterError, LayoutError, ProcessError) as error:
        stop_with(error)
    if as_json:
        typer.echo(status.to_json())
        return
    typer.echo("name servers: " + ", ".join(status.name_servers))
    for node in status.nodes:
        typer.echo(
            f"{node.group}/{node.name}  pid {_or_dash(node.pid)}  {node.address}  {node.role}  "
            f"term {_or_dash(node.term)}  last {_or_dash(node.last_index)}  "
            f"commit {_or_dash(node.commit_index)}"
        )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


@cluster_app.command("down")
def cluster_down(directory: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Stop every process of the cluster in DIR, which may be a run's, and nothing else."""
    from chaos.cluster import cluster  # noqa: PLC0415

    try:
        for name in cluster.down(directory):
            typer.echo(f"stopped {name}")
    except cluster.ClusterError as error:
        stop_with(error)


@cluster_app.command("start")
def cluster_start(directory: Directory, node: Process, group: Group = None) -> None:
    """Start a node that is down, on its own store and ports; it outlives this command."""
    _act("nodes", lambda nodes: nodes.start(directory, node, group=group, report=typer.echo))


@cluster_app.command("stop")
def cluster_stop(directory: Directory, node: Process, group: Group = None) -> None:
    """Stop one node as `down` would."""
    _act("nodes", lambda nodes: nodes.stop(directory, node, group=group, report=typer.echo))


@cluster_app.command("kill")
def cluster_kill(directory: Directory, node: Process, group: Group = None) -> None:
    """Kill one node (SIGKILL)."""
    _act("nodes", lambda nodes: nodes.kill(directory, node, group=group, report=typer.echo))


@cluster_app.command("pause")
def cluster_pause(directory: Directory, node: Process, group: Group = None) -> None:
    """Pause one node (SIGSTOP)."""
    _act("nodes", lambda nodes: nodes.pause(directory, node, group=group, report=typer.echo))


@cluster_app.command("resume")
def cluster_resume(directory: Directory, node: Process, group: Group = None) -> None:
    """Resume a paused node (SIGCONT)."""
    _act("nodes", lambda nodes: nodes.resume(directory, node, group=group, report=typer.echo))


@member_app.command("list")
def member_list(directory: Directory, group: Group = None, as_json: Json = False) -> None:
    """Show the members of the groups of the cluster in DIR, as their leaders know them."""
    rows = _members(lambda members: members.list_members(directory, group=group))
    if as_json:
        typer.echo(json.dumps([{name: getattr(r, name) for name in r.__slots__} for r in rows]))
        return
    for row in rows:
        lost = "" if row.in_layout else "  not in cluster.json: add it again"
        typer.echo(
            f"{row.group}/{row.node}  {row.kind}{', leads' if row.leads else ''}  {row.address}  "
            f"applied {row.applied_index}  {row.phase or 'no answer'}  store {row.store_id or '-'}"
            f"{lost}"
        )


@member_app.command("add")
def member_add(
    directory: Directory,
    node: Node,
    group: Group = None,
    voter: Annotated[bool, typer.Option("--voter", help="Promote it once caught up.")] = False,
    timeout_s: Patience = 900.0,
) -> None:
    """Start a new node and add it as a learner: it gets the log and counts in no majority."""
    _members(
        lambda members: members.add(
            directory, node, group=group, voter=voter, timeout_s=timeout_s, report=typer.echo
        )
    )


@member_app.command("promote")
def member_promote(
    directory: Directory, node: Node, group: Group = None, timeout_s: Patience = 900.0
) -> None:
    """Make a learner a voter, once it has caught up."""
    _members(
        lambda members: members.promote(
            directory, node, group=group, timeout_s=timeout_s, report=typer.echo
        )
    )


@member_app.command("remove")
def member_remove(directory: Directory, node: Node, group: Group = None) -> None:
    """Remove a node from its group, then stop it. A node whose disk is lost: remove, then add."""
    _members(lambda members: members.remove(directory, node, group=group, report=typer.echo))


@cluster_app.command("transfer")
def cluster_transfer(
    directory: Directory,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The next leader.")],
    group: Group = None,
) -> None:
    """Transfer the leadership of a group to one of its voters."""
    _members(lambda members: members.transfer(directory, to, group=group, report=typer.echo))


@cluster_app.command("master")
def cluster_master(
    directory: Directory,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The next master.")],
    group: Group = None,
) -> None:
    """Make a node its group's master, with the engines async and sync: the group restarts."""
    from chaos.cluster import masters  # noqa: PLC0415

    _act("nodes", lambda _: masters.change_master(directory, to, group=group, report=typer.echo))


def _members(act: Callable[[Any], Any]) -> Any:
    return _act("members", act)


def _act(module: str, act: Callable[[Any], Any]) -> Any:
    """Call into chaos.cluster; print an error that a person can fix as one line."""
    from chaos.cluster import members, nodes  # noqa: PLC0415
    from chaos.cluster.cluster import ClusterError  # noqa: PLC0415
    from chaos.cluster.layout import LayoutError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415

    try:
        return act({"members": members, "nodes": nodes}[module])
    except (ClusterError, LayoutError, ProcessError, OSError) as error:
        stop_with(error)
