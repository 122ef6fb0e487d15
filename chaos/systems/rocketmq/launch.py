"""The processes of a RocketMQ cluster: their files in the run directory, their command lines.

Place in the data path: between `configurations`, which is text, and `chaos.cluster.processes`,
which starts what is named here.

    RUN/config/<process>.properties    one per broker and name server
    RUN/homes/<process>/               its home: logs, a name server's and a controller's own files
    RUN/nodes/<group>/<node>/          a broker's store

Heaps are small: a cluster of three shares one machine with its clients. The collector is the serial
one, which starts fastest and needs no threads of its own.

Source: RocketMQ's BrokerStartup, NamesrvStartup; java(1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.systems.rocketmq.configurations import (
    LOGBACK,
    broker_properties,
    name_server_properties,
)

__all__ = ["broker_argv", "name_server_argv", "write_broker", "write_files"]

_BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"
_NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_HEAP: Final = "288m"
_NAME_SERVER_HEAP: Final = "128m"
_FLAGS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # A thread that stores keeps 4 MiB; one that gets none is lost, and its service with it.
    "-XX:MaxDirectMemorySize=1g",
    "-Xshare:auto",
    # RocketMQ 4.9 was made for Java 8, and frees its mapped files by reflection.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


def write_files(run: Path, layout: ClusterLayout, dial: Mapping[str, Mapping[str, str]]) -> None:
    """Write every process's files. `dial`: by process, table address = the address to dial."""
    for folder in ("config", "homes", "nodes", "output", "pids"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    for server in layout.name_servers:
        text = name_server_properties(
            layout, server, home=_home(run, server.name), dial=dial.get(server.name, {})
        )
        _config(run, server.name).write_text(text, encoding="utf-8")
    for place in layout.brokers:
        write_broker(run, layout, place, dial.get(place.name, {}))


def write_broker(
    run: Path, layout: ClusterLayout, place: BrokerPlace, dial: Mapping[str, str]
) -> None:
    """Write one broker's files, and make its store's directory."""
    _home(run, place.name)
    store = layout.store_directory(run, place)
    store.mkdir(parents=True, exist_ok=True)
    text = broker_properties(layout, place, store=store, dial=dial)
    _config(run, place.name).write_text(text, encoding="utf-8")


def broker_argv(run: Path, name: str, *, java: str, jars: Path) -> list[str]:
    """Return the command line of the broker of that process name."""
    return _argv(run, name, _BROKER, _BROKER_HEAP, java=java, jars=jars)


def name_server_argv(run: Path, name: str, *, java: str, jars: Path) -> list[str]:
    """Return the command line of the name server of that process name."""
    return _argv(run, name, _NAME_SERVER, _NAME_SERVER_HEAP, java=java, jars=jars)


def _argv(run: Path, name: str, program: str, heap: str, *, java: str, jars: Path) -> list[str]:
    home = run / "homes" / name
    return [
        # Java heeds no mark in its environment; what becomes Java does.
        *(sys.executable, "-m", "chaos.cluster.parent_death"),
        *(java, f"-Xms{heap}", f"-Xmx{heap}", *_FLAGS),
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
