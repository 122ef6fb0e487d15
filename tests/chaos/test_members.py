"""An `add` that is cut short: what it leaves behind, and how another one takes it up.

The group is a stand-in that answers requests; the new node's process is a real one that sleeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos.cluster import members
from chaos.cluster.cluster import ClusterError, load_layout, write_directory
from chaos.cluster.layout import ClusterLayout, fixed_ports, lay_out
from chaos.cluster.processes import ProcessTable
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

STORE = "a" * 32
NODE = "broker-a-n3"


@dataclass
class Group:
    """The leader: what it answers next to a change, and the members that it knows."""

    learners: list[dict[str, str]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)  # a code, or an exception; then the usual ones
    loses: bool = False  # whether what ends in an exception is carried out nevertheless
    late: bool = False  # whether what is rejected had been carried out, for an earlier request

    async def request(
        self, _: ClusterLayout, __: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:
        if code == RequestCode.LEDGERMQ_MEMBERS:
            voters = [{"node": f"n{i}", "address": "", "store_id": ""} for i in range(3)]
            body = json.dumps({"voters": voters, "learners": self.learners}).encode()
            return RemotingCommand(code=0, body=body)
        known = fields["node"] in {learner["node"] for learner in self.learners}
        usual = ResponseCode.INVALID_PARAMETER.value if fields["change"] == "add" and known else 0
        answer = self.answers.pop(0) if self.answers else usual
        lost = isinstance(answer, BaseException)
        if answer == 0 or (self.loses if lost else self.late):
            self.carry_out(fields)
        if isinstance(answer, BaseException):
            raise answer
        return RemotingCommand(code=answer, remark="said the group")

    def carry_out(self, fields: dict[str, str]) -> None:
        self.learners = []
        if fields["change"] == "add":
            learner = {"node": "node", "address": "address", "store_id": "storeId"}
            self.learners = [{key: fields[name] for key, name in learner.items()}]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group()

    async def leader(layout: ClusterLayout, name: str) -> tuple[object, dict[str, object]]:
        return layout.groups[name][0], {}

    async def store(*_: object) -> str:
        return STORE

    monkeypatch.setattr(members, "_await_leader", leader)
    monkeypatch.setattr(members, "await_store", store)
    monkeypatch.setattr(members, "_request", made.request)
    monkeypatch.setattr(members, "broker_process", lambda *_: ["sleep", "60"])
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    ports = fixed_ports(groups=1, replicas=3, name_servers=1, name_server_port=1, base_port=2)
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports)
    write_directory(tmp_path, layout, trace=False)
    yield tmp_path
    table = ProcessTable(tmp_path)
    table.stop(table.names(), timeout_s=5)


def pid(directory: Path) -> int | None:
    process = ProcessTable(directory).find(NODE)
    return None if process is None else process.pid


def in_layout(directory: Path) -> bool:
    return NODE in {place.name for place in load_layout(directory).brokers}


def add(directory: Path) -> list[str]:
    reported: list[str] = []
    members.add(directory, "n3", report=reported.append)
    return reported


def test_what_the_group_rejects_leaves_nothing(directory: Path, group: Group) -> None:
    group.answers = [ResponseCode.INVALID_PARAMETER.value]
    with pytest.raises(ClusterError, match="said the group"):
        add(directory)
    assert (pid(directory), in_layout(directory)) == (None, False)


@pytest.mark.parametrize("loses", [True, False], ids=["committed", "not committed"])
def test_an_interrupted_addition_is_taken_up(directory: Path, group: Group, loses: bool) -> None:
    group.answers, group.loses = [KeyboardInterrupt()], loses
    reported: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        members.add(directory, "n3", report=reported.append)
    assert "whether n3 is a member of broker-a is not known" in reported[-1]
    running = pid(directory)
    assert running is not None, "a majority may count on it soon"
    assert not in_layout(directory)
    listed = {row.node: row.in_layout for row in members.list_members(directory)}
    assert listed.get("n3") is (False if loses else None)
    add(directory)
    assert (pid(directory), in_layout(directory)) == (running, True)
    assert [learner["node"] for learner in group.learners] == ["n3"]


def test_a_crash_before_cluster_json_is_written_is_taken_up(
    directory: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as crashing:
        crashing.setattr(members, "write_layout", crash)
        with pytest.raises(SystemExit):
            add(directory)
    ProcessTable(directory).stop([NODE])  # and the node with it
    add(directory)
    assert pid(directory) is not None
    place = load_layout(directory).broker(NODE)
    assert group.learners[0]["address"] == place.raft_address


def test_another_store_is_not_taken_up(directory: Path, group: Group) -> None:
    group.answers, group.loses = [KeyboardInterrupt()], True
    with pytest.raises(KeyboardInterrupt):
        add(directory)
    group.learners[0]["store_id"] = "b" * 32
    with pytest.raises(ClusterError, match="`member remove` takes it out"):
        add(directory)
    members.remove(directory, "n3", report=lambda _: None)
    assert pid(directory) is None, "a member that cluster.json lacks is stopped too"


def test_a_rejection_after_a_lost_answer_may_be_a_success(directory: Path, group: Group) -> None:
    group.answers = [RemotingError("no answer"), ResponseCode.INVALID_PARAMETER.value]
    group.late = True
    add(directory)
    assert in_layout(directory)
    assert pid(directory) is not None
