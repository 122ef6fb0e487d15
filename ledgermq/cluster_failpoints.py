"""`ledgermq failpoints`: what can be made to fail in a node of a local cluster, and what is.

Place in the data path: part of `ledgermq.cli`; each command asks one broker by
`chaos.cluster.failpoints`. `installed` is a broker's own side of it, at its start. An error that a
person can fix is one line on stderr.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from broker.failpoints.orders import (
    Arming,
    ClockSetting,
    Order,
    OrderError,
    PointReport,
    Report,
    Switches,
    decode_order,
)
from ledgermq.endings import stop_with
from ledgermq.exit_codes import EXIT_USAGE
from ledgermq.options import Directory, Group, Json, Process

__all__ = ["failpoint_app", "installed"]

failpoint_app = typer.Typer(
    help="Failpoints of a cluster that was started with --failpoints.", no_args_is_help=True
)

_Point = Annotated[str, typer.Argument(metavar="POINT", help="A name of `failpoints list`.")]
_Action = Annotated[
    str,
    typer.Argument(metavar="ACTION", help="crash, delay, stuck, error, lie or short."),
]


def installed(engine: str, armed: Path | None) -> Switches:
    """Install the failpoints in this process, with what the file arms; a file that is missing arms
    nothing. Ends the command where the file is no order."""
    from broker.failpoints.switchboard import Switchboard  # noqa: PLC0415 - only where wanted

    switchboard = Switchboard(engine)
    switchboard.install()
    if armed is not None and armed.exists():
        try:
            switchboard.carry_out(decode_order(armed.read_bytes()))
        except (OrderError, OSError) as error:
            stop_with(f"{armed}: {error}", EXIT_USAGE)
    return switchboard


@failpoint_app.command("list")
def list_points(
    directory: Directory, node: Process, group: Group = None, as_json: Json = False
) -> None:
    """Show every point of a node: hits, fired, what is armed; and how wrong its clock is."""
    report = _order(directory, node, group, Order())
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
        return
    for point in report.points:
        typer.echo(_line(point))
    typer.echo(f"wall clock: {report.clock_off_ms:+d} ms")


@failpoint_app.command("arm")
def arm(
    directory: Directory,
    node: Process,
    point: _Point,
    action: _Action,
    group: Group = None,
    ms: Annotated[int, typer.Option(help="Of a delay; of stuck: at most.", min=0)] = 0,
    errno: Annotated[str, typer.Option(help="Of an error, such as EIO or ENOSPC.")] = "",
    count: Annotated[int, typer.Option(help="Fire so many times; 0: always.", min=0)] = 0,
    after: Annotated[int, typer.Option(help="Let so many pass first.", min=0)] = 0,
    probability: Annotated[float, typer.Option(help="Of each pass, above 0 to 1.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the chance.")] = 0,
    only: Annotated[
        str, typer.Option(help="Passes whose label matches, such as commitlog/*.")
    ] = "",
    at_start: Annotated[
        bool, typer.Option("--at-start", help="From the node's next start on, not now.")
    ] = False,
) -> None:
    """Arm a point of a node."""
    raw = {
        "point": point,
        "action": action,
        "ms": ms,
        "errno": errno,
        "count": count,
        "after": after,
        "probability": probability,
        "seed": seed,
        "only": only,
    }
    try:
        arming = msgspec.convert(raw, Arming)
    except msgspec.ValidationError as error:
        stop_with(error, EXIT_USAGE)
    if at_start:
        _at_start(directory, node, group, arming)
        return
    report = _order(directory, node, group, Order(arm=[arming]))
    typer.echo(_line(next(each for each in report.points if each.name == point)))


@failpoint_app.command("disarm")
def disarm(
    directory: Directory,
    node: Process,
    points: Annotated[list[str] | None, typer.Argument(metavar="[POINT]...")] = None,
    group: Group = None,
) -> None:
    """Disarm points of a node, all without a name; whoever is stuck goes on. What is armed at its
    start is removed, too."""
    from chaos.cluster import failpoints  # noqa: PLC0415

    _act(lambda: failpoints.disarm_at_start(directory, _name(directory, node, group), points))
    report = _order(directory, node, group, Order(disarm=points or ["*"]))
    typer.echo(f"{sum(each.armed is not None for each in report.points)} armed")


@failpoint_app.command("clock")
def clock(
    directory: Directory,
    node: Process,
    group: Group = None,
    offset_ms: Annotated[int, typer.Option(help="Ahead, or behind where negative.")] = 0,
    drift_ppm: Annotated[int, typer.Option(help="Millionths faster, or slower.")] = 0,
    strobe_ms: Annotated[int, typer.Option(help="Offset on and off at this interval.")] = 0,
) -> None:
    """Put a node's wall clock wrong; without options right again."""
    raw = {"offset_ms": offset_ms, "drift_ppm": drift_ppm, "strobe_ms": strobe_ms}
    try:
        setting = msgspec.convert(raw, ClockSetting)
    except msgspec.ValidationError as error:
        stop_with(error, EXIT_USAGE)
    report = _order(directory, node, group, Order(clock=setting))
    typer.echo(f"wall clock: {report.clock_off_ms:+d} ms")


@failpoint_app.command("lose-unsynced")
def lose_unsynced(
    directory: Directory,
    node: Process,
    group: Group = None,
    seed: Annotated[
        int | None, typer.Option(help="A random part of each file's; default: all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Take what no fsync covers from the store of a killed node, as a power failure does."""
    from chaos.cluster import failpoints  # noqa: PLC0415

    name = _name(directory, node, group)
    lost = _act(lambda: failpoints.lose_unsynced_of(directory, name, seed))
    if as_json:
        typer.echo(json.dumps({"changes": lost.changes, "names": lost.names}))
        return
    for path, count in lost.changes.items():
        typer.echo(f"{path}: {count} change(s) lost")
    for change in lost.names:
        typer.echo(f"undone: {change}")
    typer.echo(f"{lost.count} change(s) lost")


def _line(point: PointReport) -> str:
    armed = "" if point.armed is None else f"  ARMED {msgspec.json.encode(point.armed).decode()}"
    waiting = f"  {point.waiting} waiting" if point.waiting else ""
    return (
        f"{point.name}: {point.summary}  [{', '.join(each.value for each in point.actions)}]"
        f"  hits {point.hits}  fired {point.fired}{waiting}{armed}"
    )


def _at_start(directory: Path, node: str, group: str | None, arming: Arming) -> None:
    from chaos.cluster import failpoints  # noqa: PLC0415

    name = _name(directory, node, group)
    file = _act(lambda: failpoints.arm_at_start(directory, name, [arming]))
    typer.echo(f"{file}: armed from the next start of {name} on")


def _order(directory: Path, node: str, group: str | None, order: Order) -> Report:
    from chaos.cluster import failpoints  # noqa: PLC0415

    name = _name(directory, node, group)
    work: Coroutine[Any, Any, Report] = failpoints.order_node(directory, name, order)
    report: Report = _act(lambda: asyncio.run(work))
    return report


def _name(directory: Path, node: str, group: str | None) -> str:
    from chaos.cluster.cluster import load_layout  # noqa: PLC0415
    from chaos.cluster.nodes import process_name  # noqa: PLC0415

    name: str = _act(lambda: process_name(load_layout(directory.resolve()), node, group))
    return name


def _act(act: Callable[[], Any]) -> Any:
    """Call into chaos.cluster; print an error that a person can fix as one line."""
    from chaos.cluster.cluster import ClusterError  # noqa: PLC0415
    from chaos.cluster.failpoints import FailpointError  # noqa: PLC0415
    from chaos.cluster.layout import LayoutError  # noqa: PLC0415

    try:
        return act()
    except (ClusterError, FailpointError, LayoutError, OSError) as error:
        stop_with(error)
