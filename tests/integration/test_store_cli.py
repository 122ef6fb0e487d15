"""`ledgermq store check` and `store dump` on the store that a broker has left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, ledgermq_here, one_line, request
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster

COUNT = 20


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with Processes(tmp_path_factory.mktemp("store") / "cluster", replicas=1) as processes:
        yield processes.start()


@pytest.fixture(scope="module")
def store(one: Processes) -> Path:
    """Of a stopped broker that was sent COUNT messages."""
    (name,) = one.brokers
    for number in range(COUNT):
        one.send("T", b"body %d" % number, f"K{number}")
    user = RemotingCommand(
        code=RequestCode.AUTH_CREATE_USER,
        ext_fields={"username": "who"},
        body=b'{"password": "not-to-be-seen"}',
    )
    answer = request(one.place(name).address, user)
    assert isinstance(answer, RemotingCommand)
    assert answer.code == 0, answer.remark
    assert "is used by a running node" in one_line(
        ledgermq_here("store", "check", one.store(name)), 2
    )
    assert one.terminate(name) == 0
    return one.store(name)


def contents(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file()
    }


def entries(store: Path, *options: str) -> list[dict[str, object]]:
    done = ledgermq_here("store", "dump", store, "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_sound_store_is_told_and_left_as_it_is(store: Path) -> None:
    before = contents(store)
    done = ledgermq_here("store", "check", store)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "no damage"
    assert "hard state  term" in done.stdout
    found = json.loads(ledgermq_here("store", "check", store, "--json").stdout)
    assert found["problems"] == found["damages"] == []
    assert found["log"]["first_index"] == 1
    assert found["log"]["last_index"] == found["checkpoint"]["commit_index"]
    assert found["log"]["durable_position"] == found["log"]["end_position"]
    assert contents(store) == before


def test_entries_and_records_are_dumped(store: Path) -> None:
    rows = entries(store, "--records")
    assert [row["index"] for row in rows] == list(range(1, len(rows) + 1))
    records = [record for row in rows for record in row.get("records", ())]  # type: ignore[attr-defined]  # JSON
    of_topic = [record for record in records if record["topic"] == "T"]
    assert [record["offset"] for record in of_topic if record["queue"] == 0] == list(range(COUNT))
    assert {f"K{number}" for number in range(COUNT)} <= {
        part.removeprefix("UNIQ_KEY\x01")
        for record in of_topic
        for part in record["properties"].split("\x02")
    }
    data = (store / "commitlog" / f"{0:020d}").read_bytes()
    for record in of_topic:
        at = record["position"]
        assert int.from_bytes(data[at : at + 4], "big") == record["size"]
    assert [row["index"] for row in entries(store, "--from", "2", "--to", "3")] == [2, 3]
    table = ledgermq_here("store", "dump", store, "--records").stdout
    assert len(table.splitlines()) == len(rows) + len(records)


def test_a_dump_tells_of_users_and_not_of_their_passwords(store: Path) -> None:
    rows = entries(store)
    commands = [command for row in rows for command in row.get("commands", ())]  # type: ignore[attr-defined]  # JSON
    (user,) = [command for command in commands if command["command"] == "user"]
    assert user["name"] == "who"
    for options in ((), ("--json",)):
        assert "not-to-be-seen" not in ledgermq_here("store", "dump", store, *options).stdout


def test_damage_is_named_and_walked_around(store: Path) -> None:
    rows = entries(store)
    victim = rows[len(rows) // 2]
    path = store / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()
    place = int(str(victim["position"])) + 60
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :])
    try:
        before = contents(store)
        done = ledgermq_here("store", "check", store)
        assert done.returncode == 1
        assert f"entries {victim['index']}..{victim['index']}: " in done.stdout
        found = json.loads(ledgermq_here("store", "check", store, "--json").stdout)
        (damage,) = found["damages"]
        assert damage["first_index"] == damage["last_index"] == victim["index"]
        assert damage["position"] == victim["position"]
        done = ledgermq_here("store", "dump", store, "--json")
        assert done.returncode == 1
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["index"] for row in told if "damaged" in row] == [victim["index"]]
        assert [row for row in told if "damaged" not in row] == [
            row for row in rows if row != victim
        ]
        assert contents(store) == before
    finally:
        path.write_bytes(whole)


def test_a_lost_hard_state_is_a_problem(store: Path) -> None:
    paths = [store / name for name in ("hard_state", "hard_state.copy")]
    kept = {path: path.read_bytes() for path in paths}
    try:
        for path in paths:
            path.unlink()
        found = json.loads(ledgermq_here("store", "check", store, "--json").stdout)
        assert found["hard_state"] is None
        assert any("both copies are gone" in problem for problem in found["problems"])
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def test_what_is_no_store_is_a_wrong_command_line(tmp_path: Path) -> None:
    assert "is no node's store" in one_line(ledgermq_here("store", "check", tmp_path), 64)
    assert "is no node's store" in one_line(ledgermq_here("store", "dump", tmp_path / "none"), 64)
