"""The processes of a RocketMQ cluster: their files in the run directory, their command lines.

Place in the data path: between `configurations`, which is text, and `chaos.cluster.processes`,
which starts what is named here.

    RUN/config/<process>.properties    one per broker and name server
    RUN/homes/<process>/               its home: logs, a name server's and a controller's own files
    RUN/nodes/<group>/<node>/          a broker's store

How the Java machines are set is a `JavaTuning`. A laboratory's has small heaps, since a cluster of
three shares one machine with its clients, the serial collector, which starts fastest and needs no
threads of its own, and the quick compiler alone; a benchmark brings another.

Source: RocketMQ's BrokerStartup, NamesrvStartup; java(1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.systems.rocketmq.configurations import (
    LOGBACK,
    broker_properties,
    name_server_properties,
)

__all__ = [
    "LABORATORY",
    "JavaTuning",
    "broker_argv",
    "name_server_argv",
    "write_files",
]

_BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_FLAGS: Final = (
    # A thread that stores keeps 4 MiB; one that gets none is lost, and its service with it.
    "-XX:MaxDirectMemorySize=1g",
    "-Xshare:auto",
    # RocketMQ 4.9 was made for Java 8, and frees its mapped files by reflection.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTuning:
    """How RocketMQ's Java machines run. `broker`: properties in the place of the usual ones."""

    broker_heap: str
    name_server_heap: str
    flags: tuple[str, ...]
    broker: Mapping[str, object] = field(default_factory=dict)


LABORATORY: Final = JavaTuning(
    broker_heap="288m",
    name_server_heap="128m",
    flags=("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
)


def write_files(
    run: Path, layout: ClusterLayout, dial: Mapping[str, Mapping[str, str]], tuning: JavaTuning
) -> None:
    """Write every process's files. `dial`: by process, table address = the address to dial."""
    for folder in ("config", "homes", "nodes", "output", "pids"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    for server in layout.name_servers:
        text = name_server_properties(
            layout, server, home=_home(run, server.name), dial=dial.get(server.name, {})
        )
        _config(run, server.name).write_text(text, encoding="utf-8")
    for place in layout.brokers:
        _write_broker(run, layout, place, dial.get(place.name, {}), tuning)


def _write_broker(
    run: Path,
    layout: ClusterLayout,
    place: BrokerPlace,
    dial: Mapping[str, str],
    tuning: JavaTuning,
) -> None:
    """Write one broker's files, and make its store's directory."""
    _home(run, place.name)
    store = layout.store_directory(run, place)
    store.mkdir(parents=True, exist_ok=True)
    text = broker_properties(layout, place, store=store, dial=dial, tuned=tuning.broker)
    _config(run, place.name).write_text(text, encoding="utf-8")


def broker_argv(run: Path, name: str, *, java: str, jars: Path, tuning: JavaTuning) -> list[str]:
    """Return the command line of the broker of that process name."""
    machine = java, *_machine(tuning.broker_heap, tuning)
    return _argv(run, name, _BROKER, machine, jars)


def name_server_argv(
    run: Path, name: str, *, java: str, jars: Path, tuning: JavaTuning
) -> list[str]:
    """Return the command line of the name server of that process name."""
    machine = java, *_machine(tuning.name_server_heap, tuning)
    return _argv(run, name, _NAME_SERVER, machine, jars)


def _machine(heap: str, tuning: JavaTuning) -> tuple[str, ...]:
    return (f"-Xms{heap}", f"-Xmx{heap}", *tuning.flags, *_FLAGS)


def _argv(run: Path, name: str, program: str, machine: tuple[str, ...], jars: Path) -> list[str]:
    home = run / "homes" / name
    return [
        # Java heeds no mark in its environment; what becomes Java does.
        *(sys.executable, "-m", "chaos.cluster.parent_death"),
        *machine,
        *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
        *("-cp", f"{jars}/*", program, "-c", str(_config(run, name))),
    ]


def _config(run: Path, name: str) -> Path:
    return run / "config" / f"{name}.properties"


def _home(run: Path, name: str) -> Path:
    """Make the home of a process, with the logging configuration that RocketMQ 4 reads there."""
    home = run / "homes" / name
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for role in ("broker", "namesrv"):
        (home / "conf" / f"logback_{role}.xml").write_text(LOGBACK, encoding="utf-8")
    return home
