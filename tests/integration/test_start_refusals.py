"""What a person is told when a command can't do its work: one line, and an exit code that says
whose fault it is (64 the command line's or a file's that it names, 2 the machine's)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.processes import Processes, ledgermq, ledgermq_here, one_line

pytestmark = pytest.mark.cluster


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


# The command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("brokr",), "brokr"),
        (("cluster", "upp", "x"), "upp"),
        (("broker", "--confg", "x"), "--confg"),
        (("cluster", "up"), "DIR"),
        (("cluster", "up", "x", "--replicas", "9"), "--replicas"),
        (("cluster", "up", "x", "--engine", "paxos"), "paxos"),
        (("namesrv", "--listen", "nowhere"), "nowhere"),
        (("sim", "--seeds", "many"), "many"),
        (("send", "T", "x", "--namesrv", "junk"), "junk"),
        (("send", "T", "x", "--namesrv", "localhost:many"), "localhost:many"),
        (("tail", "T", "--namesrv", "localhost:70000"), "localhost:70000"),
        (("tail", "T", "--namesrv", ";"), "no name server"),
        (("tx", "list", "--namesrv", "junk"), "junk"),
        (("tx", "discrd", "x"), "discrd"),
        (("tx", "discard"), "ID"),
        (("tx", "list", "--count", "0"), "--count"),
        (("verify", "/nowhere/run"), "/nowhere/run"),
        (("chaos", "run", "/nowhere/s.toml"), "/nowhere/s.toml"),
    ],
)
def test_a_wrong_command_line_is_64(arguments: tuple[str, ...], named: str) -> None:
    line = one_line(ledgermq_here(*arguments), 64)
    assert line.count(named) == 1


def test_python_without_assertions_is_refused() -> None:
    line = one_line(ledgermq("broker", "--config", "x", flags=["-O"]), 2)
    assert "python -O" in line


def test_a_cluster_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = ledgermq("cluster", "up", tmp_path / "file", "--base-port", "0", "--namesrv-port", "0")
    assert str(tmp_path / "file") in one_line(done, 2)


# Host names -------------------------------------------------------------------------------------


def test_an_advertised_name_that_nobody_knows_is_named(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        f'group = "broker-a"\nnode = "n0"\nlisten = "127.0.0.1:{free_port()}"\n'
        f'advertised = "no-such-host.invalid:1"\nstore = "{tmp_path / "store"}"\n'
        f'raft_listen = "127.0.0.1:{(port := free_port())}"\n[peers]\nn0 = "127.0.0.1:{port}"\n'
    )
    line = one_line(ledgermq("broker", "--config", config), 64)
    assert "advertised: no address of 'no-such-host.invalid' is known" in line


# Ports -----------------------------------------------------------------------------------------


def test_a_name_servers_port_in_use_is_named(taken: int) -> None:
    line = one_line(ledgermq("namesrv", "--listen", f"127.0.0.1:{taken}"), 2)
    assert line.count(f"127.0.0.1:{taken}") == 1
    assert "Address already in use" in line


def test_a_toxiproxy_port_in_use_is_named(taken: int) -> None:
    line = one_line(ledgermq("toxiproxy", "--port", str(taken)), 2)
    assert line.count(f"127.0.0.1:{taken}") == 1
    assert "address already in use" in line.lower()


def test_cluster_up_names_the_port_and_its_owner(taken: int, tmp_path: Path) -> None:
    done = ledgermq(
        *("cluster", "up", tmp_path / "c", "--namesrv-port", str(taken), "--base-port", "0")
    )
    line = one_line(done, 2)
    assert str(taken) in line
    assert "namesrv-0" in line


@pytest.mark.parametrize(("key", "word"), [("listen", "remoting"), ("raft_listen", "Raft")])
def test_a_brokers_port_in_use_is_named(taken: int, tmp_path: Path, key: str, word: str) -> None:
    done = ledgermq("broker", "--config", broker_file(tmp_path, **{key: f"127.0.0.1:{taken}"}))
    line = one_line(done, 2)
    assert f"127.0.0.1:{taken}" in line
    assert word in line
    assert "ddress already in use" in line


# A broker's configuration ----------------------------------------------------------------------


def broker_file(
    directory: Path, *, more: str = "", peers: tuple[str, ...] = ("n0",), **settings: object
) -> Path:
    """A configuration of a broker; `settings` replace or add top-level keys, None leaves out."""
    ports = {node: free_port() for node in peers}
    values: dict[str, object] = {
        "group": "broker-a",
        "node": "n0",
        "listen": f"127.0.0.1:{free_port()}",
        "raft_listen": f"127.0.0.1:{ports.get('n0', 1)}",
        "store": str(directory / "store"),
        **settings,
    }
    lines = [
        f"{key} = {value!r}" if isinstance(value, str | list) else f"{key} = {value}"
        for key, value in values.items()
        if value is not None
    ]
    lines += ["[peers]", *(f'{node} = "127.0.0.1:{port}"' for node, port in ports.items()), more]
    path = directory / "broker.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"nodde": "n0"}, "nodde: there is no such setting (did you mean 'node'?)"),
        ({"listen": 10911}, "listen must be text, not 10911"),
        ({"listen": "nowhere"}, "listen: 'nowhere' is not host:port"),
        ({"trace": "'yes'"}, "trace must be true or false"),
        ({"group": None}, "group is missing"),
        ({"node": "n7"}, "peers: does not name this node, 'n7'"),
        ({"engine": "paxos"}, "engine: 'paxos'"),
        ({"peers": ("n0", "n1", "n2")}, "secret_file: a group of several nodes"),
        ({"secret_file": "/nowhere/secret"}, "secret_file: "),
        ({"name_servers": "127.0.0.1:9876"}, "name_servers must be a list"),
        ({"name_servers": ["nowhere"]}, "name_servers: 'nowhere' is not host:port"),
        ({"more": "[broker]\nmessage_size_max = 0"}, "message_size_max must be 1..6291456, not 0"),
        (
            {"more": "[broker]\nmessage_size_max = '1'"},
            "message_size_max must be a whole",
        ),
        ({"more": "[broker]\ndedupe_window_ms = 0"}, "dedupe_window_ms"),
        ({"more": "[broker]\npending_max = 0"}, "pending_max"),
        ({"more": "[raft]\nheartbeat_ms = 5000"}, "heartbeat_ms"),
        ({"more": "[raft]\nheartbeat = 50"}, "heartbeat: there is no such setting"),
        ({"more": "[["}, "not TOML"),
    ],
)
def test_a_wrong_configuration_names_its_key(
    tmp_path: Path, settings: dict[str, object], named: str
) -> None:
    path = broker_file(tmp_path, **settings)
    line = one_line(ledgermq_here("broker", "--config", path), 64)
    assert line.count(str(path)) == 1
    assert named in line
    assert not (tmp_path / "store").exists(), "nothing is made before the file is right"


def test_a_secret_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    path = broker_file(tmp_path, secret_file=str(tmp_path / "secret"))
    assert "secret" in one_line(ledgermq_here("broker", "--config", path), 64)


# Scenarios -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[faults]]\nname = 'kil'", "'kil' (did you mean 'kill'"),
        ("[load]\nsecnds = 3", "'secnds' (did you mean 'seconds'"),
        ("[load]\nseconds = 'three'", "load.seconds must be a number"),
        ("[workloads]", "'workloads' (did you mean 'workload'"),
        ("[cluster", "not TOML"),
    ],
)
def test_a_wrong_scenario_is_64_with_near_matches(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    line = one_line(ledgermq_here("chaos", "run", path, "--out", tmp_path / "run"), 64)
    assert named in line
    assert line.count(str(path)) == 1
    assert not (tmp_path / "run").exists()


def test_an_unknown_world_is_64_with_near_matches(tmp_path: Path) -> None:
    path = tmp_path / "right.toml"
    path.write_text("[load]\nseconds = 1", encoding="utf-8")
    done = ledgermq_here("chaos", "run", path, "--world", "locl", "--out", tmp_path / "run")
    line = one_line(done, 64)
    assert "'locl'" in line
    assert "local" in line
    assert not (tmp_path / "run").exists()


# Stores that belong to somebody else -----------------------------------------------------------


def test_a_store_serves_one_process_of_its_own_node(tmp_path: Path) -> None:
    with Processes(tmp_path / "c", replicas=1) as processes:
        (name,) = processes.brokers
        processes.start()
        pid = processes.pid(name)
        text = processes.config(name).read_text(encoding="utf-8")
        place = processes.place(name)
        elsewhere = text.replace(place.address, f"127.0.0.1:{free_port()}")
        elsewhere = elsewhere.replace(place.raft_address, f"127.0.0.1:{free_port()}")
        processes.config(name).write_text(elsewhere, encoding="utf-8")
        line = one_line(processes.run_broker(name), 2)
        assert str(processes.store(name)) in line
        assert f"pid {pid}" in line
        assert processes.send("T", b"still served", "K1").queue_offset == 0

        processes.terminate(name)
        for change in (('group = "broker-a"', 'group = "broker-b"'), ('"n0"', '"n9"')):
            processes.config(name).write_text(elsewhere.replace(*change), encoding="utf-8")
            line = one_line(processes.run_broker(name), 2)
            assert "broker-a" in line
            assert str(processes.store(name)) in line
