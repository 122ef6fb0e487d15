"""Apache RocketMQ itself: a name server and a broker from its Maven jars, on loopback.

Real processes in a directory of their own, ended with `stop`. `settings` are lines of broker.conf,
`flags` go to both Java machines, `tls` asks the name server whether the broker is there.
"""

from __future__ import annotations

import random
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from campaigns.interop.toolchain import Toolchain
from campaigns.rig.processes import request, send_command
from campaigns.rig.waiting import await_until
from chaos.cluster.processes import ProcessTable, free_ports
from remoting.protocol.command import RemotingCommand

__all__ = ["ROCKETMQ_VERSION", "Rocketmq"]

ROCKETMQ_VERSION = "5.3.3"
READY_TIMEOUT_S = 120.0
WARM_S_MAX = 1.0
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


class Rocketmq:
    """One name server, one broker."""

    breaks = False

    def __init__(
        self,
        directory: Path,
        tools: Toolchain,
        *,
        name: str = "rocketmq",
        version: str = ROCKETMQ_VERSION,
        settings: str = "",
        flags: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self._tls = tls
        self._settings = settings
        self._flags = flags
        self._table = ProcessTable(directory)
        self._directory = directory
        self._java = tools.require_java()
        self._jars = tools.rocketmq(version) / "lib"
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
            + self._settings
        )
        package = "org.apache.rocketmq"
        self._start("namesrv", f"{package}.namesrv.NamesrvStartup", "160m", "namesrv.conf")
        await_until(lambda: _listens(self.name_servers[0]), "a name server", READY_TIMEOUT_S)
        self._start("broker", f"{package}.broker.BrokerStartup", "512m", "broker.conf")
        await_until(self._is_ready, "a broker that is registered", READY_TIMEOUT_S)
        if self._tls is None:  # with TLS it takes a second for each connection, warm or not
            await_until(self._is_warm, "a broker that answers sends quickly", READY_TIMEOUT_S)

    def _start(self, name: str, program: str, heap: str, config: str) -> None:
        directory = self._directory
        argv = [self._java, f"-Xmx{heap}", "-XX:+UseSerialGC", *self._flags]
        argv += [f"-Duser.home={directory}/home", f"-Drocketmq.home.dir={directory}"]
        argv += ["-XX:MaxDirectMemorySize=512m", "-cp", f"{self._jars}/*", program]
        self._table.start(name, [*argv, "-c", str(directory / config)])

    def _is_ready(self) -> bool:
        assert self._table.find("broker") is not None, self._table.output_tail("broker")
        command = RemotingCommand(code=105, ext_fields={"topic": "TBW102"})
        answer = request(self.name_servers[0], command, tls=self._tls)
        return isinstance(answer, RemotingCommand) and answer.code == 0

    def _is_warm(self) -> bool:
        """Its first sends take seconds on a busy machine, as long as clients wait for one.

        Where it asks for accounts it refuses this one, which warms it as well.
        """
        began = time.monotonic()
        answer = request(self.broker, send_command("WarmUp", b"x", "warm"), tls=self._tls)
        return isinstance(answer, RemotingCommand) and time.monotonic() - began < WARM_S_MAX

    def break_something(self) -> None:
        raise AssertionError("nothing is broken in RocketMQ")

    def stop(self) -> None:
        self._table.stop(["broker"], timeout_s=15)
        self._table.stop(["namesrv"], timeout_s=5)


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
