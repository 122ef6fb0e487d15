"""What the clients are pointed at: our brokers, or Apache RocketMQ itself.

    ledgermq-1      one broker alone
    ledgermq-3      a group of three
    ledgermq-kill   a group of three whose leader is killed in the middle of the cases
    rocketmq        a name server and a broker from RocketMQ's Maven jars

All of it are real processes on loopback, in a directory of their own, ended with the target.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from chaos.processes import ProcessTable, free_ports
from remoting.command import RemotingCommand
from tests.integration.rig import Processes, await_until, request
from tests.interop.toolchain import Toolchain

__all__ = ["TARGETS", "Target", "started"]

TARGETS = ("ledgermq-1", "ledgermq-3", "ledgermq-kill", "rocketmq")
ROCKETMQ_VERSION = "5.3.3"
RESTART_AFTER_S = 3.0
READY_TIMEOUT_S = 120.0
HOST = "127.0.0.1"

# As small as the tests need: RocketMQ maps its files whole. A cold broker on a busy machine may
# let sends wait for longer than the 200 ms after which it refuses them.
_BROKER_CONFIG = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={ha_port}
bindAddress=127.0.0.1
namesrvAddr={name_server}
storePathRootDir={directory}/store
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
enablePropertyFilter=true
traceTopicEnable=true
recallMessageEnable=true
storeReplyMessageEnable=true
mappedFileSizeCommitLog=67108864
maxHashSlotNum=50000
maxIndexNum=200000
diskMaxUsedSpaceRatio=95
waitTimeMillsInSendQueue=5000
"""


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

    def __init__(self, group: Processes, *, breaks: bool) -> None:
        self.group = group
        self.breaks = breaks
        self.name = f"ledgermq-{'kill' if breaks else len(group.brokers)}"
        self.kills = 0

    @property
    def name_servers(self) -> list[str]:
        return self.group.name_servers

    def break_something(self) -> None:
        leader = self.group.leader()
        self.group.kill(leader)
        self.kills += 1
        threading.Timer(RESTART_AFTER_S, self.group.start_broker, [leader]).start()


class Rocketmq:
    """Apache RocketMQ: one name server, one broker."""

    name = "rocketmq"
    breaks = False

    def __init__(self, directory: Path, tools: Toolchain) -> None:
        self._table = ProcessTable(directory)
        self._directory = directory
        self._java = tools.require_java()
        self._jars = tools.rocketmq(ROCKETMQ_VERSION) / "lib"
        name_port, self._port = _ports()
        self.name_servers = [f"{HOST}:{name_port}"]
        self.broker = f"{HOST}:{self._port}"

    def start(self) -> None:
        """Raises AssertionError where it does not come up."""
        directory = self._directory
        (directory / "namesrv.conf").write_text(
            f"listenPort={self.name_servers[0].rpartition(':')[2]}\nbindAddress={HOST}\n"
            f"kvConfigPath={directory}/kvConfig.json\nconfigStorePath={directory}/namesrv.stored\n"
        )
        (directory / "broker.conf").write_text(
            _BROKER_CONFIG.format(
                port=self._port,
                ha_port=self._port + 1,
                name_server=self.name_servers[0],
                directory=directory,
            )
        )
        package = "org.apache.rocketmq"
        self._start("namesrv", f"{package}.namesrv.NamesrvStartup", "160m", "namesrv.conf")
        await_until(lambda: _listens(self.name_servers[0]), "a name server", READY_TIMEOUT_S)
        self._start("broker", f"{package}.broker.BrokerStartup", "512m", "broker.conf")
        await_until(self._is_ready, "a broker that is registered", READY_TIMEOUT_S)

    def _start(self, name: str, program: str, heap: str, config: str) -> None:
        directory = self._directory
        argv = [self._java, f"-Xmx{heap}", "-XX:+UseSerialGC"]
        argv += [f"-Duser.home={directory}/home", f"-Drocketmq.home.dir={directory}"]
        argv += ["-XX:MaxDirectMemorySize=512m", "-cp", f"{self._jars}/*", program]
        self._table.start(name, [*argv, "-c", str(directory / config)])

    def _is_ready(self) -> bool:
        assert self._table.find("broker") is not None, self._table.output_tail("broker")
        command = RemotingCommand(code=105, ext_fields={"topic": "TBW102"})
        answer = request(self.name_servers[0], command)
        return isinstance(answer, RemotingCommand) and answer.code == 0

    def break_something(self) -> None:
        raise AssertionError("nothing is broken in RocketMQ")

    def stop(self) -> None:
        self._table.stop(["broker"], timeout_s=15)
        self._table.stop(["namesrv"], timeout_s=5)


@contextlib.contextmanager
def started(name: str, directory: Path, tools: Toolchain) -> Iterator[Target]:
    """The target called `name`, ready; `directory` is made and kept."""
    directory.mkdir(parents=True)
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
        yield Ledgermq(group.start(), breaks=name == "ledgermq-kill")
        # A broker that is to come back does so before all of them are stopped.
        time.sleep(RESTART_AFTER_S if name == "ledgermq-kill" else 0)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, int(port))) == 0


def _ports() -> tuple[int, int]:
    """A name server's, and a broker's with the one above it (replication) and two below (fast)."""
    rng = random.Random(secrets.randbits(64))
    while True:
        name_port, port = free_ports(2, rng)
        block = {port - 2, port, port + 1}
        if name_port not in block and all(_is_free(each) for each in block):
            return name_port, port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
