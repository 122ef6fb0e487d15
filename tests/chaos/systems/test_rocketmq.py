"""RocketMQ as a system: what its processes are told, and what its brokers' answers mean.

Nothing here starts a Java machine; `ledgermq chaos run --world rocketmq` does.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from chaos.cluster.engines import ENGINES
from chaos.cluster.layout import ClusterLayout, LayoutError
from chaos.cluster.rocketmq_layout import (
    MODES,
    controller_address,
    lay_out_rocketmq,
    mode_of,
    ports_beside,
    with_ha_ports,
)
from chaos.experiment.rocketmq_world import ROCKETMQ_SETTINGS, settings_problem
from chaos.links.proxy_plan import Protocol, plan_proxies
from chaos.netns.plan import at_namespace_addresses
from chaos.systems.rocketmq import jars
from chaos.systems.rocketmq.configurations import broker_properties, name_server_properties
from chaos.systems.rocketmq.launch import (
    LABORATORY,
    JavaTuning,
    broker_argv,
    name_server_argv,
    write_files,
)
from chaos.systems.rocketmq.status import (
    StatusReader,
    parse_positions,
    parse_status,
    send_master,
    term_of,
)
from remoting.connections.rpc import RemotingClient
from remoting.errors import RequestTimeoutError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

SETTINGS = {"transaction_timeout_ms": 2_000, "transaction_check_max": 5, "dedupe_window_ms": 1}


def laid_out(engine: str, replicas: int, *, name_servers: int = 2) -> ClusterLayout:
    return lay_out_rocketmq(
        groups=1,
        replicas=replicas,
        name_servers=name_servers,
        engine=engine,
        ports=range(20_000, 21_000, 10),
        broker_settings=SETTINGS,
    )


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def of_broker(layout: ClusterLayout, node: int, dial: dict[str, str]) -> dict[str, str]:
    place = layout.brokers[node]
    return properties(
        broker_properties(layout, place, store=Path("/run/store"), dial=dial, tuned={})
    )


def test_the_engines_of_other_systems_are_no_modes() -> None:
    assert not any(mode_of(engine) for engine in ENGINES)


@pytest.mark.parametrize(
    ("engine", "replicas", "said"),
    [
        ("raft", 3, "unknown engine 'raft'"),
        ("dledger", 1, "3..9 in RocketMQ's mode dledger"),
        ("async-master", 1, "2..9 in RocketMQ's mode async-master"),
    ],
)
def test_what_makes_no_cluster_is_refused(engine: str, replicas: int, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        laid_out(engine, replicas)


def test_dledger_dials_its_peers_through_proxies() -> None:
    """Each node has a list of its own, in which it alone stands with its real address."""
    layout = laid_out("dledger", 3)
    n0, n1, n2 = (place.raft_address for place in layout.brokers)
    config = of_broker(layout, 1, {n0: "127.0.0.1:1", n2: "127.0.0.1:2"})
    assert config["dLegerPeers"] == f"n0-127.0.0.1:1;n1-{n1};n2-127.0.0.1:2"
    assert (config["dLegerSelfId"], config["dLegerGroup"]) == ("n1", "broker-a")
    assert config["storePathCommitLog"] == "/run/store/commitlog"


def test_a_slave_dials_its_master_through_a_proxy() -> None:
    layout = laid_out("sync-master-flush", 2)
    master_port = int(layout.brokers[0].address.rpartition(":")[2])
    proxied = {layout.brokers[0].raft_address: "127.0.0.1:1"}
    master, slave = of_broker(layout, 0, {}), of_broker(layout, 1, proxied)
    assert (master["brokerId"], master["brokerRole"]) == ("0", "SYNC_MASTER")
    assert master["flushDiskType"] == "SYNC_FLUSH"
    assert (master["totalReplicas"], master["inSyncReplicas"]) == ("2", "2")
    assert of_broker(laid_out("async-master", 2), 0, {})["inSyncReplicas"] == "1"
    assert int(master["haListenPort"]) == master_port + 1
    assert (slave["brokerId"], slave["brokerRole"]) == ("1", "SLAVE")
    assert slave["haMasterAddress"] == "127.0.0.1:1"


def test_controllers_are_in_the_name_servers() -> None:
    layout = laid_out("controller-all", 2, name_servers=3)
    controllers = [controller_address(server) for server in layout.name_servers]
    proxied = {controllers[0]: "127.0.0.1:1", layout.name_servers[1].address: "127.0.0.1:2"}
    broker = of_broker(layout, 1, proxied)
    assert broker["controllerAddr"] == f"127.0.0.1:1;{controllers[1]};{controllers[2]}"
    assert broker["namesrvAddr"].split(";")[1] == "127.0.0.1:2"
    assert broker["allAckInSyncStateSet"] == "true"
    text = name_server_properties(
        layout, layout.name_servers[2], home=Path("/run/home"), dial=proxied
    )
    server = properties(text)
    assert server["controllerDLegerSelfId"] == "n2"
    assert server["controllerDLegerPeers"] == (
        f"n0-127.0.0.1:1;n1-{controllers[1]};n2-{controllers[2]}"
    )


def test_transactions_are_those_of_the_scenario() -> None:
    config = of_broker(laid_out("dledger", 3), 0, {})
    assert config["transactionTimeOut"] == "2000"
    assert config["transactionCheckMax"] == "5"
    assert "dedupe_window_ms" not in config


@pytest.mark.parametrize("engine", MODES)
def test_no_port_is_needed_twice(engine: str) -> None:
    layout = laid_out(engine, MODES[engine].replicas_min)
    needed = [int(server.address.rpartition(":")[2]) for server in layout.name_servers]
    needed += [int(controller_address(server).rpartition(":")[2]) for server in layout.name_servers]
    for place in layout.brokers:
        port = int(place.address.rpartition(":")[2])
        raft = int(place.raft_address.rpartition(":")[2])
        needed += {port, raft, *ports_beside(port)}
    assert len(needed) == len(set(needed))


@pytest.mark.parametrize(
    ("engine", "replicas", "protocol", "pairs"),
    [
        ("dledger", 3, Protocol.DLEDGER, 6),
        ("async-master", 2, Protocol.ROCKETMQ_HA, 1),
        ("controller", 2, Protocol.DLEDGER, 2 + 2 * 2),
    ],
)
def test_links_of_replication(engine: str, replicas: int, protocol: Protocol, pairs: int) -> None:
    """Besides those to name servers and of clients, which all systems have alike."""
    proxies = plan_proxies(laid_out(engine, replicas), ["client-0"])
    between = [proxy for proxy in proxies if proxy.protocol is protocol]
    assert len(between) == pairs
    others = {proxy.protocol for proxy in proxies} - {protocol}
    assert others == {Protocol.BROKER, Protocol.NAME_SERVER}


@pytest.mark.parametrize("engine", ["controller", "dledger"])
def test_in_namespaces_all_links_are_there_and_brokers_listen_on_all_addresses(engine: str) -> None:
    layout = with_ha_ports(at_namespace_addresses(laid_out(engine, 2 + (engine == "dledger"))))
    replication = 10_915 if engine == "dledger" else 10_912
    assert {place.raft_address.rpartition(":")[2] for place in layout.brokers} == {str(replication)}
    config = of_broker(layout, 1, {})
    assert (config["bindAddress"], config["brokerIP1"]) == ("0.0.0.0", "10.88.0.2")
    pairs = {(p.dialer, p.target) for p in plan_proxies(layout, ["client-0"], direct=True)}
    names = {place.name for place in layout.brokers}
    assert {(a, b) for a in names for b in names if a != b} <= pairs


def test_links_of_another_kind_are_refused() -> None:
    assert "not 'wires'" in str(settings_problem({**ROCKETMQ_SETTINGS, "links": "wires"}))
    assert settings_problem(ROCKETMQ_SETTINGS) is None


def config_of(broker_id: int, role: str) -> bytes:
    return f"brokerId={broker_id}\nbrokerRole={role}\n".encode()


def runtime(log: int = 500, behind: int = 20) -> bytes:
    table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(log)}
    table["dispatchBehindBytes"] = str(behind)
    return json.dumps({"table": table}).encode()


@pytest.mark.parametrize(
    ("broker_id", "role", "leads"),
    [(0, "SYNC_MASTER", True), (0, "ASYNC_MASTER", True), (2, "SLAVE", False), (0, "SLAVE", False)],
)
def test_a_broker_of_id_0_that_is_no_slave_leads(broker_id: int, role: str, *, leads: bool) -> None:
    place = laid_out("dledger", 3).brokers[1]
    positions = parse_positions(runtime())
    assert positions is not None
    status = parse_status(place, 7, config_of(broker_id, role), positions, pid=3)
    assert status is not None
    assert (status.role == "leader", status.ready, status.term) == (leads, leads, 7)
    assert (status.commit_index, status.applied_index) == (500, 480)


def test_other_answers_are_no_status() -> None:
    place = laid_out("dledger", 3).brokers[0]
    positions = parse_positions(runtime())
    assert positions is not None
    assert parse_status(place, 0, b"", positions, pid=3) is None
    assert parse_status(place, 0, b"\xff", positions, pid=3) is None
    assert parse_positions(b"{}") is None
    assert parse_positions(b"\xff") is None


class OneBroker:
    """A client of a broker that answers for its role at once, for its positions when told to."""

    def __init__(self) -> None:
        self.tells = asyncio.Event()
        self.log = 500

    async def request(self, address: str, command: RemotingCommand, _: float) -> RemotingCommand:
        if command.code == RequestCode.GET_BROKER_CONFIG:
            return RemotingCommand(code=0, body=config_of(0, "SYNC_MASTER"))
        await self.tells.wait()
        return RemotingCommand(code=0, body=runtime(self.log))


async def test_a_role_does_not_wait_for_positions_that_are_known(tmp_path: Path) -> None:
    place, broker = laid_out("dledger", 3).brokers[0], OneBroker()
    reader = StatusReader(cast("RemotingClient", broker))

    async def last_index(pid: int) -> int | None:
        status = await reader.status(place, tmp_path, pid=pid, timeout_ms=20)
        return None if status is None else status.last_index

    assert await last_index(1) is None
    broker.tells.set()
    assert await last_index(1) == 500
    broker.tells.clear()
    assert await last_index(1) == 500
    assert await last_index(2) is None, (
        "positions of a process that is gone are not its successor's"
    )
    await reader.close()


class OneAnswer:
    """A client that gets this answer to whatever it requests."""

    def __init__(self, answer: RemotingCommand | None) -> None:
        self.answer = answer
        self.requests: list[RemotingCommand] = []

    async def request(self, address: str, command: RemotingCommand, _: float) -> RemotingCommand:
        self.requests.append(command)
        if self.answer is None:
            raise RequestTimeoutError(f"no answer from {address}")
        return self.answer


@pytest.mark.parametrize("answer", [RemotingCommand(code=0), RemotingCommand(code=3), None])
async def test_a_slave_is_told_until_it_answers(answer: RemotingCommand | None) -> None:
    """RocketMQ 4.9 answers that it does not know the request, which is enough."""
    client = OneAnswer(answer)
    told = await send_master(
        cast("RemotingClient", client),
        "127.0.0.1:3",
        master="127.0.0.1:1",
        replication="127.0.0.1:2",
        timeout_ms=100,
    )
    assert told is (answer is not None)
    (request,) = client.requests
    assert request.code == 906
    assert request.ext_fields["masterHaAddress"] == "127.0.0.1:2"


def test_the_term_is_that_of_the_store(tmp_path: Path) -> None:
    assert term_of(tmp_path) == 0
    (tmp_path / "epochFileCheckpoint").write_text("2\n77\n1-0\n4-900\n")
    assert term_of(tmp_path) == 4
    (tmp_path / "dledger-n1").mkdir()
    (tmp_path / "dledger-n1" / "currterm").write_text("voteLeader=n2\ncurrTerm=6\n")
    assert term_of(tmp_path) == 6


def test_every_process_has_its_files(tmp_path: Path) -> None:
    layout = laid_out("dledger", 3)
    write_files(tmp_path, layout, {}, LABORATORY)
    for name, program in (("broker-a-n2", broker_argv), ("namesrv-1", name_server_argv)):
        argv = program(tmp_path, name, java="java", jars=Path("/jars"), tuning=LABORATORY)
        assert Path(argv[-1]).is_file()
        assert Path(argv[-1]).stem == name
        assert argv[argv.index("-cp") + 1] == "/jars/*"
    assert (tmp_path / "homes" / "broker-a-n2" / "conf" / "logback_broker.xml").is_file()


def test_a_tuning_is_in_properties_and_command_lines(tmp_path: Path) -> None:
    layout = laid_out("dledger", 3)
    tuning = JavaTuning(
        broker_heap="1g",
        name_server_heap="64m",
        flags=("-XX:+UseG1GC",),
        broker={"mappedFileSizeCommitLog": 1024, "flushIntervalCommitLog": 7},
    )
    write_files(tmp_path, layout, {}, tuning)
    told = properties((tmp_path / "config" / "broker-a-n0.properties").read_text())
    assert (told["mappedFileSizeCommitLog"], told["flushIntervalCommitLog"]) == ("1024", "7")
    argv = broker_argv(tmp_path, "broker-a-n0", java="java", jars=Path("/jars"), tuning=tuning)
    assert {"-Xmx1g", "-XX:+UseG1GC"} < set(argv)
    assert "-XX:TieredStopAtLevel=1" not in argv


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(jars.RocketmqJarsError, match="no release of RocketMQ"):
        jars.require_jars("../5")


def test_without_maven_a_release_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGERMQ_ROCKETMQ_JARS", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(jars.RocketmqJarsError, match="Maven"):
        jars.require_jars("5.3.3")
    (tmp_path / "5.3.3" / "lib").mkdir(parents=True)
    assert jars.require_jars("5.3.3") == tmp_path / "5.3.3" / "lib"
