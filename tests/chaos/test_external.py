"""A cluster that somebody else runs, known by its file alone."""

from __future__ import annotations

import asyncio
import json
import random
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from campaigns.rig.waiting import until
from chaos.cluster import cluster
from chaos.cluster.external_file import ExternalFileError, read_file
from chaos.experiment.experiment import NothingBegunError, run_experiment
from chaos.links.base import Link, LinksError
from chaos.links.external import ExternalLinks
from chaos.nemesis.base import FaultContext
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.scenario import parse_scenario
from chaos.systems.base import SystemFailedError
from chaos.systems.external import ExternalSystem
from chaos.worlds.world import World
from verify.run import verify_run

NODE = '[[nodes]]\ngroup = "broker-a"\nnode = "n0"\naddress = "127.0.0.1:10911"\n'
SERVERS = 'name_servers = ["127.0.0.1:9876"]\n'
ALL_OF_PROCESSES = dict.fromkeys(("kill", "restart", "pause", "resume", "state"), "true")


def written(folder: Path, text: str = SERVERS + NODE, **commands: str) -> Path:
    path = folder / "cluster.toml"
    lines = [f"{name} = {json.dumps(command)}" for name, command in commands.items()]
    path.write_text("\n".join([text, "[commands]", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (NODE, "name_servers"),
        (SERVERS + "nodes = []\n", "nodes"),
        (SERVERS + NODE + NODE, "two nodes"),
        (SERVERS + NODE.replace(":10911", ""), "127.0.0.1"),
        (SERVERS + NODE.replace(":10911", ":70000"), "70000"),
        (SERVERS + NODE + 'colour = "red"\n', "colour"),
        ("timeout_s = 0\n" + SERVERS + NODE, "timeout_s"),
        ("name_servers = 7\n" + NODE, "name_servers"),
        ("name_servers = [", "Invalid|Unclosed|value"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExternalFileError, match=named):
        read_file(path)


def test_commands_of_processes_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ExternalFileError, match="pause, restart, resume, state"):
        read_file(written(tmp_path, kill="true"))
    with pytest.raises(ExternalFileError, match="nuke"):
        read_file(written(tmp_path, nuke="true"))


def test_what_is_not_given_is_no_part(tmp_path: Path) -> None:
    bare = read_file(written(tmp_path))
    assert not ExternalSystem(tmp_path, bare).parts
    assert not ExternalLinks(bare).effects
    whole = read_file(written(tmp_path, **ALL_OF_PROCESSES, cut="true", heal="true"))
    assert ExternalSystem(tmp_path, whole).parts
    assert ExternalLinks(whole).effects


async def test_a_command_that_fails_is_an_error_with_its_output(tmp_path: Path) -> None:
    commands = ALL_OF_PROCESSES | {"kill": "echo no such host {host} {name}; exit 3"}
    processes = ExternalSystem(tmp_path, read_file(written(tmp_path, **commands))).processes
    assert processes is not None
    with pytest.raises(SystemFailedError, match=r"ended with 3: no such host 127.0.0.1 broker-a"):
        await processes.kill("broker-a-n0")


async def test_a_state_that_contradicts_the_action_is_an_error(tmp_path: Path) -> None:
    commands = ALL_OF_PROCESSES | {"state": "echo running"}
    processes = ExternalSystem(tmp_path, read_file(written(tmp_path, **commands))).processes
    assert processes is not None
    with pytest.raises(SystemFailedError, match="is running after kill"):
        await processes.kill("broker-a-n0")


async def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    text = "timeout_s = 0.2\n" + SERVERS + NODE
    child = tmp_path / "child"
    cut = f"sleep 600 & echo $! > {child}; wait"
    links = ExternalLinks(read_file(written(tmp_path, text, cut=cut, heal="true")))
    with pytest.raises(LinksError, match=r"longer than 0\.2 s"):
        await links.cut([Link(who="a", whom="b")], "tag")
    pid = int(child.read_text())
    await until(lambda: not Path(f"/proc/{pid}/exe").exists(), "what the command started is killed")


@pytest.mark.parametrize(("command", "heals"), [("kill", "restart"), ("pause", "resume")])
async def test_a_node_of_which_no_state_is_known_is_healed(
    tmp_path: Path, command: str, heals: str
) -> None:
    """The command was carried out; the state command after it was not answered."""
    done = tmp_path / "done"
    commands = {name: f"echo {name} >> {done}" for name in ALL_OF_PROCESSES}
    state = f"grep -q {heals} {done} && echo running || exit 255"
    cluster = read_file(written(tmp_path, **commands | {"state": state}))
    fault = CATALOGUE[command].make(
        FaultContext(
            world=World("external", ExternalSystem(tmp_path, cluster), ExternalLinks(cluster), ()),
            rng=random.Random(1),
            group="broker-a",
            tag="fault-0",
            params={"target": "leader"},
            leader=lambda _: "broker-a-n0",
            statuses=dict,
        )
    )
    await fault.setup()
    with pytest.raises(SystemFailedError, match="the command state ended with 255"):
        await fault.inject()
    await fault.heal()
    assert done.read_text().split() == [command, heals]


async def test_all_that_a_command_prints_is_read(tmp_path: Path) -> None:
    """As it comes, and where it is more than anybody wants to know."""
    slowly = 'printf "{\\"role\\": "; sleep 0.2; echo "\\"leader\\"}"'
    system = ExternalSystem(tmp_path, read_file(written(tmp_path, status=slowly)))
    status = await system.status("broker-a-n0")
    assert status is not None
    assert status.role == "leader"
    much = read_file(written(tmp_path, status="head -c 300000 /dev/zero | tr '\\0' x"))
    code, output = await much.run("status")
    assert (code, set(output)) == (0, {"x"})
    assert len(output) < 100_000


async def test_a_command_that_nobody_waits_for_any_more_is_killed(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    kill = f"touch {begun}; sleep 0.5; touch {ended}"
    cluster = read_file(written(tmp_path, **ALL_OF_PROCESSES | {"kill": kill}))
    killing = asyncio.create_task(cluster.run("kill"))
    await until(begun.exists, "it runs")
    killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    await asyncio.sleep(0.7)
    assert not ended.exists(), "a heal that comes next is not overtaken"


async def test_the_status_is_what_the_command_prints(tmp_path: Path) -> None:
    told = json.dumps({"role": "leader", "term": 7, "commit_index": 9})
    system = ExternalSystem(tmp_path, read_file(written(tmp_path, status=f"echo '{told}'")))
    status = await system.status("broker-a-n0")
    assert status is not None
    assert (status.role, status.term, status.commit_index, status.ready) == ("leader", 7, 9, True)
    gone = ExternalSystem(tmp_path, read_file(written(tmp_path, status="exit 1")))
    assert await gone.status("broker-a-n0") is None
    for text in ("no json", "[1]", '{"term": "x"}'):
        wrong = ExternalSystem(tmp_path, read_file(written(tmp_path, status=f"echo '{text}'")))
        with pytest.raises(SystemFailedError, match="status of broker-a-n0"):
            await wrong.status("broker-a-n0")


async def test_what_may_have_been_cut_is_healed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    links = ExternalLinks(
        read_file(
            written(
                tmp_path,
                cut=f"echo cut {{who_host}} {{whom}} >> {log}; exit 1",
                heal=f"echo heal {{who_host}} {{whom}} >> {log}",
            )
        )
    )
    with pytest.raises(LinksError):
        await links.cut([Link(who="broker-a-n0", whom="tool")], "tag")
    await links.abort()
    assert log.read_text(encoding="utf-8").splitlines() == [
        "cut 127.0.0.1 tool",
        "heal 127.0.0.1 tool",
    ]


@pytest.mark.parametrize(
    ("settings", "named"), [({}, "file=CLUSTER.toml"), ({"colour": "red"}, "colour")]
)
def test_a_setting_that_is_wrong_or_missing_begins_nothing(
    tmp_path: Path, settings: dict[str, str], named: str
) -> None:
    with pytest.raises(NothingBegunError, match=named):
        run_experiment(
            parse_scenario("[load]\nseconds = 1\n", name="x"),
            world="external",
            world_settings=settings,
            seed=1,
            out=tmp_path / "run",
        )


SCENARIO = """
name = "external"
[load]
seconds = 5
[workload]
topics = ["orders"]
queues = 2
send_rate = 20
plain_clients = 1
plain_processes = 2
transaction_rate = 0
push_clients = 1
[[faults]]
name = "kill"
target = "leader"
at_s = 1
duration_s = 1
[[faults]]
name = "partition-leader"
at_s = 3
duration_s = 1
"""
STATE = """
import sys
from pathlib import Path
from chaos.cluster.processes import ProcessTable
state = ProcessTable(Path(sys.argv[1])).state(sys.argv[2])
print({"gone": "gone", "T": "stopped"}.get(state, "running"))
"""


@pytest.mark.cluster
def test_a_cluster_by_its_commands(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    cluster.up(directory, namesrv_port=0, base_port=0, detach=True, report=lambda _: None)
    try:
        layout = cluster.load_layout(directory)
        own = shlex.join([sys.executable, "-m", "ledgermq", "cluster"])
        place = shlex.quote(str(directory))
        texts = [f"name_servers = {json.dumps(list(layout.name_server_addresses))}"]
        texts += [
            f'[[nodes]]\ngroup = "{p.group}"\nnode = "{p.node}"\naddress = "{p.address}"'
            for p in layout.brokers
        ]
        script = shlex.join([sys.executable, "-c"])
        path = written(
            tmp_path,
            'system = "ledgermq-elsewhere"\nremembers_keys = true\n' + "\n".join(texts),
            kill=f"{own} kill {place} {{name}}",
            restart=f"{own} start {place} {{name}}",
            pause=f"{own} pause {place} {{name}}",
            resume=f"{own} resume {place} {{name}}",
            state=f"{script} {shlex.quote(STATE)} {place} {{name}}",
        )
        run = run_experiment(
            parse_scenario(SCENARIO, name="external"),
            world="external",
            world_settings={"file": str(path)},
            seed=1,
            out=tmp_path / "run",
        )
    finally:
        cluster.down(directory)
    faults = {row["name"]: row for row in pq.read_table(run / "faults").to_pylist()}
    assert faults["kill"]["effect"] == "taken"
    assert faults["partition-leader"]["effect"] == "not_taken"
    assert "lacks links that can be changed: cut" in faults["partition-leader"]["evidence"]
    verdict = verify_run(run, engine="duckdb")
    assert {c.verdict.value for c in verdict.checks} <= {"pass", "unknown"}
    assert {"A4", "A5", "A10"} <= {c.id for c in verdict.checks if c.verdict.value == "pass"}
