"""Stores of Apache RocketMQ as rows, built by hand: whatever may lie in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.verify.rocketmq_writer import (
    DLEDGER_HEADER,
    HALF,
    OP,
    Message,
    value,
    write_dledger,
    write_plain,
    write_queues,
)
from verify.export.rocketmq.commitment import survey
from verify.export.rocketmq.replica import log_tables, unit_tables
from verify.export.rocketmq.store_files import rocketmq_stores

Row = dict[str, Any]
COMMIT = 8


def store(run: Path, node: str) -> Path:
    return run / "nodes" / "g" / node


def log_rows(run: Path, *, members: int = 3) -> dict[str, list[Row]]:
    """The rows of every replica's log, by node."""
    listed = [p.relative_to(run).as_posix() for p in (run / "nodes").rglob("*") if p.is_file()]
    found = rocketmq_stores(run, listed)
    extents = survey(found, {"g": [f"n{number}" for number in range(members)]})
    return {
        one.node: [row for table in log_tables(one, extent) for row in table.to_pylist()]
        for one, extent in zip(found, extents, strict=True)
    }


def plain(count: int, **more: Any) -> list[Message]:
    return [
        Message(topic="T", offset=number, properties=value(f"v{number}"), **more)
        for number in range(count)
    ]


def stamped(messages: list[Message], stored_ms: int) -> list[Message]:
    for message in messages:
        message.stored_ms = stored_ms
    return messages


def files(run: Path, node: str, folder: str) -> list[Path]:
    return sorted((store(run, node) / folder).iterdir())


def dledger_group(run: Path, count: int = 6, committed: int | None = 5) -> list[Message]:
    messages = plain(count)
    for node in ("n0", "n1", "n2"):
        write_dledger(store(run, node), messages, committed_index=committed)
    return messages


def test_records_of_a_plain_commit_log(tmp_path: Path) -> None:
    """Over several files: positions are the indexes, and everything stored is served."""
    messages = plain(30)
    write_plain(store(tmp_path, "n0"), messages)
    rows = log_rows(tmp_path)["n0"]
    assert len(files(tmp_path, "n0", "commitlog")) > 1
    assert [row["value"] for row in rows] == [f"v{number}" for number in range(30)]
    assert [row["index"] for row in rows] == [message.at + 1 for message in messages]
    assert {(row["term"], row["kind"], row["committed"], row["cq_ok"]) for row in rows} == {
        (0, "message", True, True)
    }
    assert len({row["chain"] for row in rows}) == 30


def test_entries_of_dledger(tmp_path: Path) -> None:
    dledger_group(tmp_path, 40, committed=39)
    rows = log_rows(tmp_path)
    assert len(files(tmp_path, "n1", "dledger-n0/data")) > 1
    for of_node in rows.values():
        assert [row["index"] for row in of_node] == list(range(1, 41))
        assert {(row["term"], row["committed"], row["cq_ok"]) for row in of_node} == {
            (1, True, True)
        }
        assert [row["chain"] for row in of_node] == [row["chain"] for row in rows["n0"]]


def test_transactions_have_their_kinds(tmp_path: Path) -> None:
    """One commit, one rollback, one op record for both, one half that waits."""
    halves = [
        Message(topic=HALF, offset=number, properties=value(f"h{number}", lmq_tx=f"t{number}"))
        for number in range(3)
    ]
    final = Message(
        topic="T", offset=0, sys_flag=COMMIT, prepared=1, properties=value("h0", lmq_tx="t0")
    )
    op = Message(topic=OP, offset=0, body=b"0,1,", properties={"TAGS": "d"}, tag_hash=100)
    write_plain(store(tmp_path, "n0"), [*halves, final, op])
    rows = log_rows(tmp_path)["n0"]
    assert [row["kind"] for row in rows] == ["half", "half", "half", "final", "op", "op"]
    ops = rows[4:]
    assert [(row["slot"], row["tx"], row["value"], row["decision"]) for row in ops] == [
        (0, "t0", "h0", "commit"),
        (1, "t1", "h1", None),
    ]
    assert (ops[0]["queue_offset"], ops[1]["queue_offset"]) == (0, None)
    assert (ops[0]["cq_ok"], ops[1]["cq_ok"]) == (True, None)


def test_final_of_the_half_at_position_0_names_0(tmp_path: Path) -> None:
    """The same offset is that of a message without a half: another's, its retry, a plain one."""
    half = Message(topic=HALF, offset=0, properties=value("h0", UNIQ_KEY="k0"))
    final = Message(topic="T", offset=0, sys_flag=COMMIT, properties=value("h0", UNIQ_KEY="k0"))
    retry = dataclasses.replace(final, topic="%RETRY%group")
    other = Message(topic="T", offset=1, sys_flag=COMMIT, properties=value("h1", UNIQ_KEY="k1"))
    plain_one = Message(topic="T", offset=2, properties=value("h0", UNIQ_KEY="k0"))
    write_plain(store(tmp_path, "n0"), [half, final, retry, other, plain_one])
    rows = log_rows(tmp_path)["n0"]
    assert [row["kind"] for row in rows] == ["half", "final", "message", "message", "message"]


def test_delayed_message_has_its_time_in_the_unit(tmp_path: Path) -> None:
    delayed = Message(
        topic="SCHEDULE_TOPIC_XXXX",
        offset=0,
        queue=2,
        properties=value("d", DELAY="3", TAGS="a"),
        tag_hash=11_000,
    )
    write_plain(store(tmp_path, "n0"), [delayed])
    (row,) = log_rows(tmp_path)["n0"]
    assert (row["tag_hash"], row["cq_ok"]) == (11_000, True)


def test_own_committed_index_and_that_of_the_group(tmp_path: Path) -> None:
    """A follower that heard less has the rest committed too, as far as it has the same entries."""
    for node, committed in (("n0", 3), ("n1", 1), ("n2", None)):
        messages = plain(6)
        if node == "n2":
            messages = [*plain(2), *(Message(topic="T", offset=2, body=b"other", term=2),)]
        write_dledger(store(tmp_path, node), messages, committed_index=committed)
    committed = {
        node: [row["index"] for row in rows if row["committed"]]
        for node, rows in log_rows(tmp_path).items()
    }
    assert committed == {"n0": [1, 2, 3, 4], "n1": [1, 2, 3, 4], "n2": [1, 2]}


def test_majority_of_the_newest_term_is_committed(tmp_path: Path) -> None:
    """Nobody wrote an index down: two of three hold five entries of the newest term."""
    for node, count in (("n0", 6), ("n1", 5), ("n2", 3)):
        write_dledger(store(tmp_path, node), plain(count))
    committed = {
        node: sum(row["committed"] for row in rows) for node, rows in log_rows(tmp_path).items()
    }
    assert committed == {"n0": 5, "n1": 5, "n2": 3}


def test_older_term_on_a_majority_is_not(tmp_path: Path) -> None:
    """A minority's newer entry may still overwrite it (Raft, 5.4.2)."""
    newer = Message(topic="T", offset=1, body=b"newer", term=3)
    write_dledger(store(tmp_path, "n0"), [*plain(1), newer])
    for node in ("n1", "n2"):
        write_dledger(store(tmp_path, node), plain(2))
    rows = log_rows(tmp_path)
    assert not any(row["committed"] for of_node in rows.values() for row in of_node)


def test_tail_that_was_called_committed_and_is_missing(tmp_path: Path) -> None:
    messages = dledger_group(tmp_path, committed=5)
    path = files(tmp_path, "n2", "dledger-n0/data")[-1]
    path.write_bytes(path.read_bytes()[: messages[-1].at - DLEDGER_HEADER])
    last = log_rows(tmp_path)["n2"][-1]
    assert (last["index"], last["kind"], last["committed"]) == (6, "damaged", True)
    assert "called index 5 committed" in last["damage"]


def test_damage_between_records_is_told(tmp_path: Path) -> None:
    messages = plain(5)
    write_plain(store(tmp_path, "n0"), messages)
    (path,) = files(tmp_path, "n0", "commitlog")
    content = bytearray(path.read_bytes())
    content[messages[2].at + 90] ^= 0xFF
    path.write_bytes(content)
    rows = log_rows(tmp_path)["n0"]
    assert [row["value"] for row in rows] == ["v0", "v1", None, "v3", "v4"]
    assert (rows[2]["kind"], rows[2]["index"]) == ("damaged", messages[2].at + 1)
    assert "CRC" in rows[2]["damage"]


def test_damaged_record_in_a_sound_entry(tmp_path: Path) -> None:
    dledger_group(tmp_path)
    path = files(tmp_path, "n1", "dledger-n0/data")[0]
    content = bytearray(path.read_bytes())
    content[48 + 89] ^= 0xFF
    path.write_bytes(content)
    rows = log_rows(tmp_path)["n1"]
    assert [row["kind"] for row in rows] == ["damaged", *["message"] * 5]
    assert rows[0]["chain"] is not None


def test_left_over_bytes_behind_the_end_are_nothing(tmp_path: Path) -> None:
    """A log that was cut, and then written on by less: RocketMQ does not clear what it cuts off."""
    run_before, run_after = tmp_path / "before", tmp_path / "after"
    write_plain(store(run_before, "n0"), plain(6))
    shorter = [*plain(2), Message(topic="T", offset=2, body=b"", stored_ms=2_000)]
    write_plain(store(run_after, "n0"), shorter)
    (left_over,), (path,) = (files(run, "n0", "commitlog") for run in (run_before, run_after))
    end = shorter[-1].at + shorter[-1].size
    path.write_bytes(path.read_bytes()[:end] + left_over.read_bytes()[end:])
    rows = log_rows(run_after)["n0"]
    assert [row["kind"] for row in rows] == ["message"] * 3


def test_missing_file_is_told(tmp_path: Path) -> None:
    write_plain(store(tmp_path, "n0"), plain(60))
    files(tmp_path, "n0", "commitlog")[1].unlink()
    (damaged,) = (row for row in log_rows(tmp_path)["n0"] if row["kind"] == "damaged")
    assert damaged["position"] == 2048
    assert "goes on at position 4096" in damaged["damage"]


def test_plain_log_before_dledger(tmp_path: Path) -> None:
    """Indexes of both rise, and are the same on all replicas."""
    for node in ("n0", "n1"):
        old, new = plain(3), plain(3)
        write_plain(store(tmp_path, node), old, closed=True)
        write_dledger(store(tmp_path, node), new, first=2048, committed_index=2)
        write_queues(store(tmp_path, node), old)
    for rows in log_rows(tmp_path).values():
        indexes = [row["index"] for row in rows]
        assert indexes == sorted(set(indexes))
        assert indexes[3:] == [2049, 2050, 2051]
        assert all(row["committed"] for row in rows)


def test_chains_begin_where_all_have_their_records(tmp_path: Path) -> None:
    """A replica whose first file was deleted is compared with the others from there on."""
    for node in ("n0", "n1"):
        write_plain(store(tmp_path, node), plain(40))
    files(tmp_path, "n1", "commitlog")[0].unlink()
    rows = log_rows(tmp_path)
    chains = {node: {row["index"]: row["chain"] for row in of} for node, of in rows.items()}
    first = min(chains["n1"])
    assert chains["n1"] == {index: chain for index, chain in chains["n0"].items() if index >= first}
    assert {chain for index, chain in chains["n0"].items() if index < first} == {None}


def test_controller_mode(tmp_path: Path) -> None:
    """The newest epoch's log is the group's; what another one has beside it is not committed."""
    messages = plain(4)
    write_plain(store(tmp_path, "n0"), messages)
    stale = [*plain(3), Message(topic="T", offset=3, body=b"stale")]
    write_plain(store(tmp_path, "n1"), stale)
    second = messages[3].at
    epochs = {"n0": f"1-0\n2-{second}\n", "n1": "1-0\n"}
    for node, lines in epochs.items():
        text = f"{lines.count(chr(10))}\n0\n{lines}"
        (store(tmp_path, node) / "epochFileCheckpoint").write_text(text)
    rows = log_rows(tmp_path)
    assert [row["term"] for row in rows["n0"]] == [1, 1, 1, 2]
    assert [row["committed"] for row in rows["n0"]] == [True] * 4
    assert [row["committed"] for row in rows["n1"]] == [True, True, True, False]


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_not_dispatched_owes_no_unit(tmp_path: Path, *, clean: bool) -> None:
    """Where the broker was killed; after a clean stop each record owes one."""
    messages = plain(4)
    write_plain(store(tmp_path, "n0"), messages)
    (path,) = files(tmp_path, "n0", "consumequeue/T/0")
    path.write_bytes(path.read_bytes()[:60])
    if not clean:
        (store(tmp_path, "n0") / "abort").write_bytes(b"")
    rows = log_rows(tmp_path)["n0"]
    assert [row["cq_ok"] for row in rows] == [True] * 3 + [False if clean else None]


def test_blank_units_are_none(tmp_path: Path) -> None:
    messages = [Message(topic="T", offset=5, properties=value("v"))]
    write_plain(store(tmp_path, "n0"), messages)
    (found,) = rocketmq_stores(tmp_path, ["nodes/g/n0/consumequeue/T/0/" + "0" * 20])
    (row,) = (row for table in unit_tables(found) for row in table.to_pylist())
    assert (row["queue_offset"], row["position"]) == (5, 0)


@pytest.mark.parametrize("write", [write_plain, write_dledger])
def test_garbage_never_raises(tmp_path: Path, write: Callable[..., None]) -> None:
    write(store(tmp_path, "n0"), plain(5))
    (path,) = files(tmp_path, "n0", "commitlog" if write is write_plain else "dledger-n0/data")
    whole = path.read_bytes()
    for offset in range(0, len(whole.rstrip(b"\0")), 13):
        path.write_bytes(whole[:offset] + b"\xff" * 7 + whole[offset + 7 :])
        rows = log_rows(tmp_path)["n0"]
        assert len([row for row in rows if row["kind"] == "message"]) < 6
