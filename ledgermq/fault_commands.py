"""Faults by hand: `ledgermq chaos inject`, `heal` and `status`.

Place in the data path: part of `ledgermq.cli`; each command calls `chaos.experiment.by_hand`. Exit
code 1 where a fault was not seen to take effect or to heal.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from ledgermq.endings import log_to_stderr, stop_with
from ledgermq.exit_codes import EXIT_FAIL, EXIT_USAGE
from ledgermq.options import Json

__all__ = ["add_fault_commands"]


def add_fault_commands(app: typer.Typer) -> None:
    """Add the commands to `ledgermq chaos`."""
    app.command("inject")(inject)
    app.command("heal")(heal)
    app.command("status")(status)
    app.command("hold", hidden=True)(hold)


def inject(
    fault: Annotated[str, typer.Argument(metavar="FAULT", help="See `ledgermq chaos faults`.")],
    words: Annotated[list[str], typer.Argument(metavar="[KEY=VALUE]... DIR")],
    group: Annotated[str | None, typer.Option(help="Default: the first.")] = None,
) -> None:
    """Inject a fault into the cluster in DIR, and say what was seen of it; `heal` ends it."""
    from chaos.cluster.cluster import ClusterError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415
    from chaos.experiment import by_hand  # noqa: PLC0415

    *settings, directory = words
    try:
        params = by_hand.parse_words(fault, settings)
        held = by_hand.inject(Path(directory), fault, params, group=group)
    except by_hand.FaultUsageError as error:
        stop_with(error, EXIT_USAGE)
    except (ClusterError, ProcessError, OSError) as error:
        stop_with(error)
    typer.echo(held.describe())
    if held.state == "refused" or held.effect != "taken":
        raise typer.Exit(EXIT_FAIL)


def heal(directory: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Heal every fault that was injected by hand, and say what was seen of that."""
    from chaos.cluster.cluster import ClusterError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415
    from chaos.experiment import by_hand  # noqa: PLC0415

    try:
        faults = by_hand.heal(directory)
    except (ClusterError, ProcessError, OSError) as error:
        stop_with(error)
    for fault in faults:
        typer.echo(fault.describe())
    if not faults:
        typer.echo("no fault is active")
    if any(fault.state != "healed" for fault in faults):
        raise typer.Exit(EXIT_FAIL)


def status(
    directory: Annotated[Path, typer.Argument(metavar="DIR")], as_json: Json = False
) -> None:
    """Show every fault that was injected by hand into the cluster in DIR."""
    from chaos.cluster.cluster import ClusterError  # noqa: PLC0415
    from chaos.cluster.processes import ProcessError  # noqa: PLC0415
    from chaos.experiment import by_hand  # noqa: PLC0415

    try:
        faults = by_hand.statuses(directory)
    except (ClusterError, ProcessError, OSError) as error:
        stop_with(error)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(fault) for fault in faults], indent=2))
        return
    for fault in faults:
        typer.echo(fault.describe())
    if not faults:
        typer.echo("no fault was injected by hand")


def hold(name: str, directory: Path) -> None:
    """Hold one fault (started by `inject`)."""
    import uvloop  # noqa: PLC0415

    from chaos.experiment import by_hand  # noqa: PLC0415

    log_to_stderr()
    uvloop.run(by_hand.hold(directory, name))
