"""The commands and their options; each calls the package that does the work.

Errors that a person can fix (a port in use, a wrong scenario, no Java) are one line on stderr and
exit code 2, or 64 if the command line or a file named on it is wrong; anything else is a bug and
keeps its traceback.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ledgermq.campaign_commands import chaos_campaign, chaos_minimise
from ledgermq.cluster_commands import cluster_app
from ledgermq.cluster_failpoints import failpoint_app
from ledgermq.endings import log_to_stderr, reason_of, stop_with
from ledgermq.exit_codes import EXIT_ERROR, EXIT_OK, EXIT_USAGE
from ledgermq.fault_commands import add_fault_commands
from ledgermq.options import (
    AccessKey,
    Json,
    LocalRun,
    NameServers,
    SecretKey,
    Tls,
    local_run,
    name_server_list,
)
from ledgermq.tx_commands import tx_app
from verify.sources.run_uri import run_place

__all__ = ["app"]

app = typer.Typer(
    name="ledgermq",
    help="A RocketMQ-compatible broker cluster on a Raft log, and the laboratory that breaks it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
store_app = typer.Typer(help="The store of a stopped node.", no_args_is_help=True)
chaos_app = typer.Typer(help="Experiments.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")
app.add_typer(store_app, name="store")
app.add_typer(chaos_app, name="chaos")
app.add_typer(failpoint_app, name="failpoints")
app.add_typer(tx_app, name="tx")
add_fault_commands(chaos_app)


def _run(work: Coroutine[Any, Any, None]) -> None:
    import uvloop  # noqa: PLC0415

    uvloop.run(work)


# Servers ---------------------------------------------------------------------------------------


@app.command()
def namesrv(
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT; 127.0.0.1:9876 unless the file says otherwise")
    ] = None,
    config_file: Annotated[Path | None, typer.Option("--config", help="TOML file")] = None,
) -> None:
    """Run a name server until SIGTERM."""
    from namesrv.config import NameServerConfig, load_config  # noqa: PLC0415
    from namesrv.server import run  # noqa: PLC0415
    from remoting.errors import RemotingError  # noqa: PLC0415

    log_to_stderr()
    try:
        config = NameServerConfig() if config_file is None else load_config(config_file)
        if listen is not None:
            config = dataclasses.replace(config, listen=listen)
    except (ValueError, RemotingError) as error:
        stop_with(error if config_file is None else f"{config_file}: {error}", EXIT_USAGE)
    except OSError as error:
        stop_with(error, EXIT_USAGE)
    try:
        _run(run(config))
    except OSError as error:
        stop_with(error)


@app.command()
def broker(
    config: Annotated[Path, typer.Option(help="TOML file")],
    failpoints: Annotated[
        bool, typer.Option("--failpoints", help="Let requests make it crash, wait, fail and lie.")
    ] = False,
    armed: Annotated[
        Path | None,
        typer.Option(
            "--failpoints-armed", metavar="FILE", help="Armed at the start, if it is there."
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM."""
    from broker.config.config import ConfigError, load_config  # noqa: PLC0415
    from broker.process.server import run_broker  # noqa: PLC0415
    from raft.log.log_format import CorruptLogError  # noqa: PLC0415

    log_to_stderr()
    try:
        settings = load_config(config)
    except ConfigError as error:
        stop_with(f"{config}: {error}", EXIT_USAGE)
    except OSError as error:
        stop_with(error, EXIT_USAGE)
    switchboard = None
    if failpoints:
        from ledgermq.cluster_failpoints import installed  # noqa: PLC0415

        switchboard = installed(settings.engine, armed)
    elif armed is not None:
        stop_with("--failpoints-armed: needs --failpoints", EXIT_USAGE)
    stopped = f"broker {settings.group}/{settings.node} stopped"
    try:
        _run(run_broker(settings, switchboard))
    except ConfigError as error:
        stop_with(f"{config}: {error}", EXIT_USAGE)
    except OSError as error:
        of_disk = error.filename is None and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}
        where = f"{settings.store}: " if of_disk else ""  # a failed write doesn't know its file
        stop_with(f"{stopped}: {where}{reason_of(error)}")
    except CorruptLogError as error:  # its path is relative to the store
        stop_with(f"{stopped}: {settings.store}/{error}")


@app.command()
def toxiproxy(
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8474,
    seed: Annotated[int | None, typer.Option(help="Makes every toxic's luck repeatable.")] = None,
) -> None:
    """Run the embedded Toxiproxy-compatible server by itself.

    Beyond Toxiproxy's toxics it has some that hit whole RocketMQ frames by request code
    (frame_drop, frame_delay, frame_duplicate, frame_reorder, frame_damage), counted at
    GET /proxies/NAME/frames. docs/TOXIPROXY.md has their attributes.
    """
    from toxiproxy.server import run  # noqa: PLC0415

    code = run(host, port, seed)
    if code:
        raise typer.Exit(EXIT_ERROR)


# Stores ----------------------------------------------------------------------------------------


@store_app.command("check")
def store_check(
    directory: Annotated[Path, typer.Argument(metavar="DIR")], as_json: Json = False
) -> None:
    """Report what a stopped node's store holds, and what of it is damaged; changes nothing."""
    from ledgermq.store import check  # noqa: PLC0415

    _inspect_store(lambda: check(directory, as_json=as_json))


@store_app.command("dump")
def store_dump(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    low: Annotated[int | None, typer.Option("--from", metavar="INDEX")] = None,
    high: Annotated[int | None, typer.Option("--to", metavar="INDEX", help="Included.")] = None,
    records: Annotated[bool, typer.Option("--records", help="Each message, too.")] = False,
) -> None:
    """Print the log entries of a stopped node's store."""
    from ledgermq.store import dump  # noqa: PLC0415

    _inspect_store(lambda: dump(directory, as_json=as_json, low=low, high=high, records=records))


def _inspect_store(inspect: Callable[[], int]) -> NoReturn:
    from ledgermq.store import NoStoreError  # noqa: PLC0415
    from raft.log.log_format import CorruptLogError  # noqa: PLC0415

    try:
        code = inspect()
    except NoStoreError as error:
        stop_with(error, EXIT_USAGE)
    except (OSError, CorruptLogError) as error:
        stop_with(error)
    raise typer.Exit(code)


# A person's quick try --------------------------------------------------------------------------


@app.command()
def send(
    topic: str,
    text: Annotated[str, typer.Argument(help="The body; default: lines of stdin.")] = "",
    name_servers: NameServers = "127.0.0.1:9876",
    tags: Annotated[str, typer.Option()] = "",
    keys: Annotated[str, typer.Option(help="Business keys, separated by spaces.")] = "",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """Send one message, or one per line of stdin, and print where each is stored."""
    from ledgermq.quick_try import QuickTryError, instance_settings, send_lines  # noqa: PLC0415

    servers = _servers(name_servers)
    # Bodies are bytes, of any encoding or none: as they were typed, as they come in.
    lines = [os.fsencode(text)] if text else (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    try:
        instance = instance_settings(access_key=access_key, secret_key=secret_key, tls=tls)
        _run(send_lines(servers, topic, lines, tags=tags, keys=keys, instance=instance))
    except QuickTryError as error:
        stop_with(error)


@app.command()
def tail(
    topic: str,
    name_servers: NameServers = "127.0.0.1:9876",
    from_start: Annotated[bool, typer.Option("--from-start")] = False,
    count: Annotated[int, typer.Option(help="Stop after so many; 0: never.", min=0)] = 0,
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: Tls = False,
) -> None:
    """Print a topic's messages as they arrive."""
    from ledgermq.quick_try import QuickTryError, instance_settings, tail_topic  # noqa: PLC0415

    servers = _servers(name_servers)
    try:
        instance = instance_settings(access_key=access_key, secret_key=secret_key, tls=tls)
        _run(tail_topic(servers, topic, from_start=from_start, count=count, instance=instance))
    except QuickTryError as error:
        stop_with(error)


def _servers(text: str) -> list[str]:
    try:
        return name_server_list(text)
    except ValueError as error:
        stop_with(error, EXIT_USAGE)


# The laboratory --------------------------------------------------------------------------------


@chaos_app.command("run")
def chaos_run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml")],
    world: Annotated[str, typer.Option()] = "local",
    world_settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Of the world.")
    ] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="raft or pysyncobj; in the world rocketmq dledger, sync-master, async-master,"
            " controller... Default: the scenario's."
        ),
    ] = None,
    toxiproxy_url: Annotated[
        str | None, typer.Option("--toxiproxy", help="URL of a real Toxiproxy.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", parser=local_run)] = None,
    judge: Annotated[str, typer.Option(help="Who judges: both, duckdb or spark.")] = "both",
    master: Annotated[str | None, typer.Option(help="Spark master.")] = None,
    verify_after: Annotated[bool, typer.Option("--verify/--no-verify")] = True,
) -> None:
    """Run an experiment, verify what it left, and write its report."""
    from ledgermq.laboratory import experiment_to_report  # noqa: PLC0415

    raise typer.Exit(
        experiment_to_report(
            scenario,
            world=world,
            world_settings=_settings(world_settings or []),
            seed=seed,
            engine=engine,
            toxiproxy_url=toxiproxy_url,
            out=out,
            judge=judge,
            master=master,
            verify_after=verify_after,
        )
    )


def _settings(pairs: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            stop_with(ValueError(f"--set {pair!r}: wanted is NAME=VALUE"), EXIT_USAGE)
        settings[name] = value
    return settings


chaos_app.command("campaign")(chaos_campaign)
chaos_app.command("minimise")(chaos_minimise)


@chaos_app.command("faults")
def chaos_faults(as_json: Json = False) -> None:
    """List every fault: the worlds it works in, what it needs, how its effect is probed."""
    from chaos.experiment.world_catalogue import worlds_of  # noqa: PLC0415
    from chaos.nemesis.catalogue import CATALOGUE  # noqa: PLC0415

    if as_json:
        rows = [
            {
                "name": fault.name,
                "summary": fault.summary,
                "worlds": worlds_of(fault.parts, fault.effects),
                "needs": fault.needs,
                "probe": fault.probe,
                "parameters": dict(fault.parameters),
            }
            for fault in CATALOGUE.values()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for fault in CATALOGUE.values():
        typer.echo(f"{fault.name}: {fault.summary}")
        worlds = ", ".join(worlds_of(fault.parts, fault.effects)) or "none"
        typer.echo(f"    worlds: {worlds}; needs: {fault.needs}")
        typer.echo(f"    probe: {fault.probe}")
        if fault.parameters:
            settings = ", ".join(f"{name} = {value}" for name, value in fault.parameters.items())
            typer.echo(f"    settings: {settings}")


@chaos_app.command("worlds")
def chaos_worlds(as_json: Json = False) -> None:
    """List every world: what it is made of, and what this host lacks for it."""
    from chaos.experiment.world_catalogue import WORLDS  # noqa: PLC0415

    if as_json:
        rows = [
            {
                "name": world.name,
                "summary": world.summary,
                "missing": world.missing(),
                "settings": dict(world.settings),
            }
            for world in WORLDS.values()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for world in WORLDS.values():
        typer.echo(f"{world.name}: {world.summary}")
        typer.echo(f"    missing here: {world.missing() or 'nothing'}")
        for name, value in world.settings.items():
            typer.echo(f"    --set {name}={value}")


@app.command()
def sim(
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Both included.")] = "1..200",
    nodes: Annotated[int | None, typer.Option(min=1, max=7, help="Default: 3 and 5.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="core, group or ha. Default: one seed in four a whole group.")
    ] = None,
    replay: Annotated[int | None, typer.Option(metavar="SEED", help="Print its trace.")] = None,
    schedule: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay the faults that a file lists.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1)] = 2,
    keep: Annotated[
        Path, typer.Option(metavar="DIR", help="Where schedules of failing seeds are written.")
    ] = Path("tests/sim/schedules"),
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Leave out what passed with these sources, and note what passes."
        ),
    ] = None,
) -> None:
    """Simulate bare cores and whole groups under faults, and check every rule at every step."""
    from chaos.sim.campaign.command import sim_command  # noqa: PLC0415

    raise typer.Exit(
        sim_command(
            seeds=seeds,
            nodes=nodes,
            kind=kind,
            replay_seed=replay,
            schedule=schedule,
            jobs=jobs,
            keep=keep,
            record=record,
        )
    )


@app.command()
def verify(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A folder, or a URI of Hadoop's.")],
    engine: Annotated[str, typer.Option(help="Who judges: both, duckdb or spark.")] = "both",
    master: Annotated[str | None, typer.Option(help="Spark master; default local.")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Rules of your own, judged too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a run directory and write verdict.json: DuckDB first, then Spark."""
    from ledgermq.laboratory import verify_to_verdict  # noqa: PLC0415

    raise typer.Exit(
        verify_to_verdict(
            run_place(run), engine=engine, master=master, rules=rules, as_json=as_json
        )
    )


@app.command()
def export(run: LocalRun) -> None:
    """Read the replicas' stores of a run into Parquet, and list these tables in its run.json."""
    from ledgermq.laboratory import export_tables  # noqa: PLC0415

    raise typer.Exit(export_tables(run))


@app.command()
def sql(
    run: LocalRun,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    as_json: Json = False,
) -> None:
    """Query a run's tables and stages in DuckDB's SQL."""
    from ledgermq.laboratory import query_to_rows  # noqa: PLC0415

    raise typer.Exit(query_to_rows(run, query, as_json=as_json))


@app.command()
def spark_cluster(
    workers: Annotated[int, typer.Option(min=1, max=64)] = 2,
    cores: Annotated[int, typer.Option(min=1, max=256, help="Of each worker.")] = 1,
    memory: Annotated[str, typer.Option(help="Of each worker, as Spark writes it.")] = "1g",
) -> None:
    """Run a standalone Spark cluster on loopback until Ctrl-C, for `verify --master`."""
    from ledgermq.laboratory import serve_spark_cluster  # noqa: PLC0415

    raise typer.Exit(serve_spark_cluster(workers=workers, cores=cores, memory=memory))


@app.command()
def report(
    run: LocalRun,
    output: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Write the run's report: one HTML file."""
    from ledgermq.laboratory import write_report  # noqa: PLC0415

    raise typer.Exit(write_report(run, output or run / "report.html"))


@app.command()
def doctor(
    only: Annotated[str | None, typer.Option(help="One finding, such as Java.")] = None,
) -> None:
    """Report what this machine lacks for ledgermq, and how to get it."""
    from ledgermq.doctor import UnknownFindingError, examine  # noqa: PLC0415

    try:
        is_fine = examine(only)
    except UnknownFindingError as error:
        stop_with(error, EXIT_USAGE)
    raise typer.Exit(EXIT_OK if is_fine else EXIT_ERROR)
