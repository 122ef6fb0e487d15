"""`ledgermq cluster member` and `cluster transfer` on a cluster of real processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, ledgermq, request, send_command
from campaigns.rig.waiting import await_until
from chaos.cluster import cluster, members
from chaos.cluster.cluster import ClusterError, load_layout
from chaos.cluster.layout import ClusterLayout
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster


def silent(_: str) -> None:
    """Takes what a person would be told."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Three nodes; the last test of this module takes one out."""
    with Processes(tmp_path_factory.mktemp("members")) as group:
        yield group.start()


def voters(group: Processes) -> set[str]:
    return {row.node for row in members.list_members(group.directory) if row.kind == "voter"}


def test_the_list_tells_who_leads(three: Processes) -> None:
    leader = three.place(three.leader()).node
    done = ledgermq("cluster", "member", "list", str(three.directory), "--json")
    rows = json.loads(done.stdout)
    assert {row["node"]: row["leads"] for row in rows} == {
        node: node == leader for node in ("n0", "n1", "n2")
    }
    assert {row["kind"] for row in rows} == {"voter"}
    assert all(row["phase"] == "serving" for row in rows)


def test_leadership_goes_where_it_is_sent(three: Processes) -> None:
    for _ in range(2):
        target = next(name for name in three.brokers if name != three.leader())
        node = three.place(target).node
        done = ledgermq("cluster", "transfer", str(three.directory), "--to", node)
        assert (done.returncode, done.stdout) == (0, f"{node} leads broker-a\n"), done.stderr
        assert three.leader() == target


def test_misuse_is_told_in_a_line(three: Processes) -> None:
    directory = three.directory
    for act, message in (
        (lambda: members.list_members(directory, group="broker-z"), "no group broker-z"),
        (lambda: members.transfer(directory, "n9", report=silent), "n9 is no node of broker-a"),
        (lambda: members.promote(directory, "n0", report=silent), "n0 is no learner"),
        (lambda: members.promote(directory, "n9", report=silent), "n9 is no learner"),
        (lambda: members.remove(directory, "n9", report=silent), "n9 is no member"),
        (lambda: members.add(directory, "n1", report=silent), "n1 is a node of broker-a already"),
        (lambda: members.add(directory, "../n3", report=silent), "is no name of a node"),
    ):
        with pytest.raises(ClusterError, match=message):
            act()
    done = ledgermq("cluster", "member", "promote", str(directory), "n0")
    assert done.returncode == 2
    assert (
        done.stderr
        == "ledgermq: broker-a: the change does not fit the membership: n0 is no learner\n"
    )
    assert voters(three) == {"n0", "n1", "n2"}


def test_without_a_cluster_there_is_nothing_to_change(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="holds no cluster"):
        members.remove(tmp_path, "n1", report=silent)


def test_of_several_groups_one_has_to_be_named(
    three: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = three.layout.brokers
    other = [
        place.__class__(
            **{name: getattr(place, name) for name in place.__slots__} | {"group": "broker-b"}
        )
        for place in places
    ]
    layout = ClusterLayout(brokers=(*places, *other))
    monkeypatch.setattr(members, "load_layout", lambda _: layout)
    with pytest.raises(ClusterError, match="several groups, name one: broker-a, broker-b"):
        members.remove(three.directory, "n1", report=silent)


def test_another_engine_keeps_its_members(
    three: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ClusterLayout(engine="pysyncobj", brokers=three.layout.brokers)
    monkeypatch.setattr(members, "load_layout", lambda _: layout)
    with pytest.raises(ClusterError, match="the engine pysyncobj of broker-a"):
        members.add(three.directory, "n3", report=silent)


def test_a_learner_gets_the_log_and_counts_once_promoted(three: Processes) -> None:
    three.send("T", b"there before", "C" * 32)
    directory = three.directory
    members.add(directory, "n3", report=silent)
    place = load_layout(directory).broker("broker-a-n3")
    assert {row.node: row.kind for row in members.list_members(directory)} == {
        "n0": "voter",
        "n1": "voter",
        "n2": "voter",
        "n3": "learner",
    }

    def is_learner() -> bool:
        roles = {node.name: node.role for node in cluster.status(directory).nodes}
        return roles["n3"] == "learner"

    await_until(is_learner, "n3 has heard that it is a learner")
    with pytest.raises(ClusterError, match="n3 is a node of broker-a already"):
        members.add(directory, "n3", report=silent)
    members.promote(directory, "n3", report=silent)
    assert voters(three) == {"n0", "n1", "n2", "n3"}
    members.transfer(directory, "n3", report=silent)

    def takes_messages() -> bool:
        stored = request(place.address, send_command("T", b"from n3", "D" * 32))
        return isinstance(stored, RemotingCommand) and stored.code == 0

    await_until(takes_messages, "n3 leads")
    members.remove(directory, "n3", report=silent)
    assert voters(three) == {"n0", "n1", "n2"}
    assert three.table.find("broker-a-n3") is None


def test_a_node_whose_disk_was_lost_is_replaced(three: Processes) -> None:
    victim = next(name for name in three.brokers if name != three.leader())
    node = three.place(victim).node
    before = {row.node: row.store_id for row in members.list_members(three.directory)}
    three.kill(victim)
    shutil.rmtree(three.store(victim))
    three.start_broker(victim)
    await_until(
        lambda: "is empty but the group knows another one" in three.output(victim),
        "it knows that it was wiped",
    )
    assert node not in {status.node for status in three.statuses().values() if status.ready}
    for words in (("remove", node), ("add", node, "--voter")):
        done = ledgermq("cluster", "member", words[0], str(three.directory), *words[1:])
        assert done.returncode == 0, done.stderr
    after = {row.node: row.store_id for row in members.list_members(three.directory)}
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == [node]
    three.await_caught_up()


def test_members_that_came_stay_over_a_stop(three: Processes) -> None:
    directory = three.directory
    members.add(directory, "n4", voter=True, report=silent)
    cluster.down(directory)
    up = cluster.up(directory, namesrv_port=0, base_port=0, detach=True, report=silent)
    assert {node.name for node in up.nodes} == {"n0", "n1", "n2", "n4"}
    assert voters(three) == {"n0", "n1", "n2", "n4"}
    members.remove(directory, "n4", report=silent)


def test_the_leader_is_taken_out_and_the_others_go_on(three: Processes) -> None:
    leader = three.leader()
    node = three.place(leader).node
    stored = three.send("T", b"before", "A" * 32)
    members.remove(three.directory, node, report=silent)
    assert voters(three) == {"n0", "n1", "n2"} - {node}
    assert three.table.find(leader) is None
    assert three.store(leader).is_dir(), "its store stays"
    assert node not in {place.node for place in load_layout(three.directory).brokers}
    after = three.send("T", b"after", "B" * 32)
    assert after.position > stored.position
