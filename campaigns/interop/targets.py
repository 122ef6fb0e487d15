"""What the clients are pointed at: our brokers, or Apache RocketMQ itself.

    ledgermq-1      one broker alone
    ledgermq-3      a group of three
    ledgermq-kill   a group of three whose leader is killed in the middle of the cases
    ledgermq-proxy  a group of three behind RocketMQ's proxy; ledgermq-proxy-kill (`grpc_proxy.py`)
    ledgermq-groups three groups of one broker, for RocketMQ's own integration tests (`groups.py`)
    rocketmq        a name server and a broker from RocketMQ's Maven jars
    ledgermq-ENGINE-FLUSH...  on the engines async and sync (`master_slave.py`)
    ...-acl, -tls   behind accounts, and behind accounts and TLS (`secured.py`)

All of it are real processes on loopback, in a directory of their own, ended with the target.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from campaigns.interop.groups import three_groups
from campaigns.interop.grpc_proxy import proxy
from campaigns.interop.master_slave import (
    GROUPS,
    IN_MEMORY_SIZE,
    KILL,
    MASTER_SLAVE_TARGETS,
    MODES,
    REPLICAS,
    ROLES,
    Mode,
    Roles,
)
from campaigns.interop.rocketmq import Rocketmq
from campaigns.interop.secured import SECURED_TARGETS, secured
from campaigns.interop.toolchain import Toolchain
from campaigns.rig.processes import Processes
from campaigns.rig.waiting import await_until

__all__ = ["TARGETS", "Target", "started"]

TARGETS = (
    "ledgermq-1",
    "ledgermq-3",
    "ledgermq-kill",
    "rocketmq",
    *SECURED_TARGETS,
    "ledgermq-proxy",
    "ledgermq-proxy-kill",
    "ledgermq-groups",
    *MASTER_SLAVE_TARGETS,
)
RESTART_AFTER_S = 3.0
WHOLE_TIMEOUT_S = 60.0


class Target(Protocol):
    """Something that clients can be pointed at."""

    @property
    def name(self) -> str: ...

    @property
    def name_servers(self) -> list[str]: ...

    @property
    def breaks(self) -> bool:
        """Something is broken in the middle of the cases."""
        ...

    def break_something(self) -> None:
        """Returns when it is broken; it mends by itself."""
        ...


class Ledgermq:
    """Our brokers."""

    def __init__(self, name: str, group: Processes, *, proxy: str | None = None) -> None:
        self.group = group
        self.breaks = name.endswith("kill")
        self.name = name
        self.proxy = proxy  # where clients with gRPC are served
        self.kills = 0

    @property
    def name_servers(self) -> list[str]:
        return self.group.name_servers

    def break_something(self) -> None:
        """Kill whoever leads, once nobody misses: without a majority no client could go on."""
        self.await_whole()
        self.kill_leader()

    def await_whole(self) -> None:
        """Wait until whoever was killed is back. A Java client that asks for the default topic
        while no broker may be sent to takes that for an answer, and finds no new topic any more."""
        await_until(self._is_whole, "who was killed is back", WHOLE_TIMEOUT_S)

    def kill_leader(self) -> None:
        leader = self.group.leader()
        self.group.kill(leader)
        self.kills += 1
        threading.Timer(RESTART_AFTER_S, self.group.start_broker, [leader]).start()

    def _is_whole(self) -> bool:
        statuses = self.group.statuses().values()
        committed = max((status.commit_index for status in statuses if status.ready), default=None)
        return (
            len(statuses) == len(self.group.brokers)
            and committed is not None
            and all(status.last_index >= committed for status in statuses)
        )


@contextlib.contextmanager
def started(name: str, directory: Path, tools: Toolchain) -> Iterator[Target]:
    """The target called `name`, ready; `directory` is made and kept."""
    directory.mkdir(parents=True)
    if name in SECURED_TARGETS:
        with secured(name, directory, tools) as target:
            yield target
        return
    if name == "ledgermq-groups":
        with three_groups(name, directory) as groups:
            yield groups
        return
    if name in MODES:
        with _master_slave(MODES[name], directory) as target:
            yield target
        return
    if name == "rocketmq":
        real = Rocketmq(directory, tools)
        try:
            real.start()
            yield real
        finally:
            real.stop()
        return
    replicas = 1 if name == "ledgermq-1" else 3
    settings = {"trace_topic_enable": True}
    with Processes(directory, replicas=replicas, broker_settings=settings) as group:
        group.start()
        if name.startswith("ledgermq-proxy"):
            beside = directory / "proxy"
            beside.mkdir()
            with proxy(beside, group.name_servers, tools) as endpoint:
                yield Ledgermq(name, group, proxy=endpoint)
        else:
            yield Ledgermq(name, group)
        # A broker that is to come back does so before all of them are stopped.
        time.sleep(RESTART_AFTER_S if name.endswith("kill") else 0)


@contextlib.contextmanager
def _master_slave(mode: Mode, directory: Path) -> Iterator[Target]:
    if mode.kind == GROUPS:
        with three_groups(mode.target, directory, engine=mode.engine, flush=mode.flush) as groups:
            yield groups
        return
    settings: dict[str, int | bool | str] = {"trace_topic_enable": True, "flush": mode.flush}
    if mode.kind == ROLES:
        settings["in_memory_size_bytes_max"] = IN_MEMORY_SIZE
    with Processes(
        directory,
        replicas=REPLICAS,
        engine=mode.engine,
        broker_settings=settings,
        failpoints=mode.kind == ROLES,
    ) as group:
        group.start()
        if mode.kind == ROLES:
            roles = Roles(mode, group)
            try:
                yield roles
            finally:
                roles.resume()  # what is stopped would not end
        else:
            yield Ledgermq(mode.target, group)
        # A broker that is to come back does so before all of them are stopped.
        time.sleep(RESTART_AFTER_S if mode.kind == KILL else 0)
