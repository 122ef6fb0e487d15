"""Apache RocketMQ's broker as a slave of our master, and as the master of our slave.

    python -m campaigns.interop.ha_pair [--version 5.3.3] [--messages 2000] --output FILE

Our master, on the engine `async`, takes messages with tags and keys, batches, and large ones that
fill several files of the log, and a broker of Apache RocketMQ that is configured as its slave
follows it, found through our name server. Then every queue is read at both, and the bytes are
compared; so are the ends of the two logs. The slave copies twice: from the log's beginning, and
what came while it was stopped. Then the same with RocketMQ's master and our slave.

Exit code 0: all is equal; 1: something differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from campaigns.rig.processes import request
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.processes import ProcessTable, free_ports
from chaos.systems.rocketmq.jars import require_jars, require_java
from client.message import Message
from client.produce.producer import Producer
from remoting.errors import RemotingError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = ["Found", "main"]

TOPICS = ("HaPlain", "HaBatch", "HaLarge")
QUEUES = 4
FILE_SIZE = 4 << 20
READY_S = 180.0
_PULL_MAX = 32
_LARGE_SIZE = 128 << 10
_LARGE_COUNT = 2 * FILE_SIZE // _LARGE_SIZE

_BROKER_CONFIG = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId={broker_id}
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={ha_port}
bindAddress=127.0.0.1
namesrvAddr={name_server}
storePathRootDir={directory}/store
brokerRole={role}
autoCreateTopicEnable=true
flushDiskType=ASYNC_FLUSH
slaveReadEnable=true
mappedFileSizeCommitLog={file_size}
maxHashSlotNum=50000
maxIndexNum=200000
diskMaxUsedSpaceRatio=99
"""


@dataclass(slots=True)
class Found:
    """What was compared between a master, of that make, and its slave. `differs` names each queue
    whose records are not equal."""

    master: str
    messages: int = 0
    queues: int = 0
    bytes: int = 0
    master_end: int = 0
    slave_end: int = 0
    topics_missing: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return (
            self.messages > 0
            and not self.differs
            and not self.topics_missing
            and self.master_end == self.slave_end
        )


class RocketmqBroker:
    """One broker of Apache RocketMQ, master or slave of `broker-a`."""

    def __init__(
        self, directory: Path, name_server: str, version: str, *, is_master: bool = False
    ) -> None:
        self._directory = directory
        self._table = ProcessTable(directory)
        self._java, self._jars = require_java(), require_jars(version)
        self._port, ha_port = free_ports(2, random.Random())
        self.address, self.ha_address = f"127.0.0.1:{self._port}", f"127.0.0.1:{ha_port}"
        (directory / "broker.conf").write_text(
            _BROKER_CONFIG.format(
                broker_id=0 if is_master else 1,
                role="ASYNC_MASTER" if is_master else "SLAVE",
                port=self._port,
                ha_port=ha_port,
                name_server=name_server,
                directory=directory,
                file_size=FILE_SIZE,
            )
        )

    def start(self) -> None:
        """Raises AssertionError where it does not answer."""
        directory = self._directory
        argv = [self._java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=512m"]
        argv += [f"-Duser.home={directory}/home", f"-Drocketmq.home.dir={directory}"]
        argv += ["-cp", f"{self._jars}/*", "org.apache.rocketmq.broker.BrokerStartup"]
        self._table.start("rocketmq", [*argv, "-c", str(directory / "broker.conf")])
        await_until(lambda: self.end() is not None, "RocketMQ's broker answers", READY_S)

    def stop(self) -> None:
        self._table.stop(["rocketmq"], timeout_s=30)

    def end(self) -> int | None:
        """Return where its log ends; None where it does not answer."""
        assert self._table.find("rocketmq") is not None, self._table.output_tail("rocketmq")
        return log_end(self.address)


def log_end(address: str) -> int | None:
    """Return the position at which a broker's log ends; None where it does not answer."""
    answer = request(address, RemotingCommand(code=28))
    if isinstance(answer, RemotingError) or answer.code != ResponseCode.SUCCESS:
        return None
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def records_of(address: str, topic: str, queue_id: int, start: int = 0) -> list[bytes]:
    """Return the records of a queue from `start` on as a consumer gets them, each as stored."""
    records: list[bytes] = []
    while True:
        fields = {
            "consumerGroup": "HaReader",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(start + len(records)),
            "maxMsgNums": str(_PULL_MAX),
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        answer = request(address, RemotingCommand(code=11, ext_fields=fields), 10_000)
        if isinstance(answer, RemotingError) or answer.code != ResponseCode.SUCCESS:
            return records
        at = 0
        for _ in decode_records(answer.body):
            size = int.from_bytes(answer.body[at : at + 4], "big")
            records.append(answer.body[at : at + size])
            at += size


async def load(name_server: str, count: int) -> None:
    """Send about `count` messages, and large ones that fill two files of the log."""
    rng = random.Random(count)
    async with Producer("HaProducer", name_server) as producer:
        for number in range(count // 2):
            message = Message(
                topic=TOPICS[0], body=b"%08d" % number, tags=f"t{number % 3}", keys=(f"k{number}",)
            )
            await producer.send(message)
        for number in range(count // 64):
            batch = [Message(topic=TOPICS[1], body=b"%08d/%d" % (number, at)) for at in range(32)]
            await producer.send_batch(batch)
        for _ in range(_LARGE_COUNT):
            await producer.send(Message(topic=TOPICS[2], body=rng.randbytes(_LARGE_SIZE)))


def compare(make: str, master: str, slave: str) -> Found:
    """Wait until the slave has the master's log, then read every queue at both."""
    await_until(lambda: log_end(slave) == log_end(master), "the slave has the whole log", READY_S)
    found = Found(make, master_end=log_end(master) or 0, slave_end=log_end(slave) or 0)
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            ours = records_of(master, topic, queue_id)

            def serves(
                topic: str = topic, queue_id: int = queue_id, last: int = len(ours) - 1
            ) -> bool:
                return last < 0 or bool(records_of(slave, topic, queue_id, last))

            try:
                # It copies topics once a minute.
                await_until(serves, "the slave serves the queue", READY_S)
            except AssertionError:
                found.topics_missing.append(f"{topic}/{queue_id}")
                continue
            theirs = records_of(slave, topic, queue_id)
            found.queues += 1
            found.messages += len(ours)
            found.bytes += sum(map(len, ours))
            if ours != theirs:
                found.differs.append(f"{topic}/{queue_id}: {len(ours)} here, {len(theirs)} there")
    return found


def follow_theirs(directory: Path, version: str, count: int) -> list[Found]:
    """Run RocketMQ's master and our slave, and compare twice, as `follow` does."""
    name_port, port, ha_port = free_ports(3, random.Random())
    name_server, address = f"127.0.0.1:{name_port}", f"127.0.0.1:{port}"
    theirs = directory / "rocketmq-master"
    theirs.mkdir(parents=True, exist_ok=True)
    table = ProcessTable(theirs)
    program = [sys.executable, "-m", "ledgermq"]
    found = []
    try:
        table.start("namesrv", [*program, "namesrv", "--listen", name_server])
        master = RocketmqBroker(theirs, name_server, version, is_master=True)
        master.start()
        (theirs / "slave.toml").write_text(
            f'group = "broker-a"\nnode = "n1"\nlisten = "{address}"\nengine = "async"\n'
            f'raft_listen = "127.0.0.1:{ha_port}"\nstore = "{theirs / "ours"}"\n'
            f'name_servers = ["{name_server}"]\n'
            f'[peers]\nmaster = "{master.ha_address}"\nn1 = "127.0.0.1:{ha_port}"\n'
            f'[brokers]\nmaster = "{master.address}"\nn1 = "{address}"\n'
            f'[broker]\nmaster = "master"\nmaster_is_foreign = true\n'
            f"segment_size_bytes_max = {FILE_SIZE}\ndisk_space_warning_level_ratio = 101\n"
        )
        words = [*program, "broker", "--config", str(theirs / "slave.toml")]
        await_until(lambda: routed(name_server), "the master is registered", READY_S)
        table.start("slave", words)
        for _ in range(2):
            asyncio.run(load(name_server, count))
            if table.find("slave") is None:
                table.start("slave", words)
            found.append(compare("rocketmq", master.address, address))
            table.stop(["slave"], timeout_s=30)
    finally:
        table.stop(table.names(), timeout_s=30)
    return found


def routed(name_server: str) -> bool:
    """Return whether a broker that creates topics is registered."""
    answer = request(name_server, RemotingCommand(code=105, ext_fields={"topic": "TBW102"}))
    return isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS


def follow(directory: Path, version: str, count: int) -> list[Found]:
    """Run our master and RocketMQ's slave, and compare twice: after the slave's first copy, and
    after it was away."""
    ours = directory / "ours"
    status = cluster.up(
        ours,
        engine="async",
        replicas=1,
        name_servers=1,
        namesrv_port=0,
        base_port=0,
        detach=True,
        settings={"segment_size_bytes_max": FILE_SIZE, "flush": "async"},
        report=lambda _: None,
    )
    (name_server,), (master,) = status.name_servers, status.nodes
    theirs = directory / "theirs"
    found = []
    try:
        theirs.mkdir(exist_ok=True)
        slave = RocketmqBroker(theirs, name_server, version)
        asyncio.run(load(name_server, count))
        slave.start()
        found.append(compare("ledgermq", master.address, slave.address))
        slave.stop()
        asyncio.run(load(name_server, count))
        slave.start()
        found.append(compare("ledgermq", master.address, slave.address))
    finally:
        if (theirs / "pids").exists():
            ProcessTable(theirs).stop(["rocketmq"], timeout_s=30)
        cluster.down(ours)
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ha_pair", description=__doc__)
    parser.add_argument("--version", default="5.3.3", help="of Apache RocketMQ")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--directory", type=Path, help="kept; by default a temporary one")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="ha-pair-") as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        values = directory.resolve(), options.version, options.messages
        found = [*follow(*values), *follow_theirs(*values)]
    rows = [{**asdict(one), "equal": one.is_equal} for one in found]
    options.output.write_text(json.dumps({"version": options.version, "runs": rows}, indent=2))
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")
    return 0 if all(one.is_equal for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
