"""The hard state file: golden bytes, crashes at every point, damage named."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.log.disk import OsDisk
from raft.log.hard_state import (
    CorruptHardStateError,
    HardStateFile,
    decode_hard_state,
    encode_hard_state,
)
from raft.messages import HardState, NodeId
from raft.store.identity import IdentityFile, StoreIdentity
from raft.store.node_store import NodeStore
from tests.raft.forgetful_disk import ForgetfulDisk
from tests.raft.node_group import node_config

STATE = HardState(current_term=0x0102, voted_for=NodeId("n1"))


def test_the_bytes_are_drawn_in_formats() -> None:
    head = bytes.fromhex("4c 4d 51 48 00 00 00 10 00 00 00 00 00 00 01 02 00 02 6e 31")
    assert encode_hard_state(STATE) == head + zlib.crc32(head).to_bytes(4, "big")


@settings(deadline=None)
@given(term=st.integers(0, 2**64 - 1), name=st.none() | st.text(min_size=1, max_size=60))
def test_what_is_encoded_is_decoded(term: int, name: str | None) -> None:
    state = HardState(current_term=term, voted_for=NodeId(name) if name else None)
    assert decode_hard_state(encode_hard_state(state)) == state


def test_a_store_never_written_has_term_0(tmp_path: Path) -> None:
    assert HardStateFile(OsDisk(tmp_path)).load() == HardState(current_term=0, voted_for=None)


def test_it_survives_a_restart(tmp_path: Path) -> None:
    HardStateFile(OsDisk(tmp_path)).save(STATE)
    newer = HardState(current_term=0x0103, voted_for=None)
    HardStateFile(OsDisk(tmp_path)).save(newer)
    assert HardStateFile(OsDisk(tmp_path)).load() == newer
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hard_state", "hard_state.copy"]
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {512}


@pytest.mark.parametrize("name", ["hard_state", "hard_state.copy"])
@pytest.mark.parametrize("damage", ["gone", "empty", "flipped", "torn", "padding"])
def test_one_damaged_copy_is_made_whole_from_the_other(
    tmp_path: Path, name: str, damage: str
) -> None:
    HardStateFile(OsDisk(tmp_path)).save(STATE)
    whole = (tmp_path / name).read_bytes()
    if damage == "gone":
        (tmp_path / name).unlink()
    else:
        spoilt = {
            "empty": b"",
            "flipped": bytes([whole[0]]) + bytes([whole[1] ^ 4]) + whole[2:],
            "torn": whole[:15] + bytes(497),
            "padding": whole[:-1] + b"!",
        }
        (tmp_path / name).write_bytes(spoilt[damage])
    assert HardStateFile(OsDisk(tmp_path)).load() == STATE
    assert (tmp_path / name).read_bytes() == whole


def test_two_damaged_copies_are_refused(tmp_path: Path) -> None:
    HardStateFile(OsDisk(tmp_path)).save(STATE)
    for path in tmp_path.iterdir():
        path.write_bytes(b"LMQH" + bytes(508))
    with pytest.raises(CorruptHardStateError, match="hard_state: damaged at position"):
        HardStateFile(OsDisk(tmp_path)).load()


def test_a_file_of_before_the_copy_is_read_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "hard_state").write_bytes(encode_hard_state(STATE))
    assert HardStateFile(OsDisk(tmp_path)).load() == STATE
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {512}


def test_a_vote_needs_no_block_of_a_full_disk() -> None:
    disk = ForgetfulDisk(random.Random(1))
    HardStateFile(disk).load()
    sizes = {name: len(disk.content(name)) for name in disk.list("")}
    disk.is_full = True
    HardStateFile(disk).save(STATE)
    assert {name: len(disk.content(name)) for name in disk.list("")} == sizes
    assert HardStateFile(disk).load() == STATE


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.sampled_from([0.0, 0.5, 1.0]))
def test_what_save_returned_from_is_durable(seed: int, keep: float) -> None:
    disk = ForgetfulDisk(random.Random(seed))
    for term in range(1, 5):
        state = HardState(current_term=term, voted_for=NodeId(f"n{term}"))
        HardStateFile(disk).save(state)
        disk.crash(keep=keep)
        assert HardStateFile(disk).load() == state


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_failed_save_leaves_one_of_both_states(seed: int, keep: float) -> None:
    disk = ForgetfulDisk(random.Random(seed))
    HardStateFile(disk).save(STATE)
    disk.fail_syncs = True
    with pytest.raises(OSError, match="Input/output"):
        HardStateFile(disk).save(HardState(current_term=9, voted_for=None))
    disk.crash(keep=keep)
    disk.fail_syncs = False
    # The new state may be there, or the old one: nobody was told anything.
    assert HardStateFile(disk).load() in {STATE, HardState(current_term=9, voted_for=None)}


@pytest.mark.parametrize("flipped", range(len(encode_hard_state(STATE))))
def test_each_flipped_byte_is_noticed(flipped: int) -> None:
    data = bytearray(encode_hard_state(STATE))
    data[flipped] ^= 0x20
    with pytest.raises(CorruptHardStateError, match="hard_state: damaged at position"):
        decode_hard_state(bytes(data))


@pytest.mark.parametrize("size", range(len(encode_hard_state(STATE))))
def test_a_short_file_is_noticed(size: int) -> None:
    with pytest.raises(CorruptHardStateError):
        decode_hard_state(encode_hard_state(STATE)[:size])


# --- lost, and never written ---------------------------------------------------------------------

N0 = NodeId("n0")
FILES = ("hard_state", "hard_state.copy")


def opened(tmp_path: Path) -> NodeStore:
    peers = {N0: "127.0.0.1:1", NodeId("n1"): "127.0.0.1:2"}
    return NodeStore(node_config(tmp_path, "n0", peers, trace=False), None)


def test_a_born_store_without_an_entry_that_lost_its_vote_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.bear(b"")
    store.hard_state_file.save(STATE)
    store.close()
    for name in FILES:
        (tmp_path / "n0" / name).unlink()
    for _ in range(2):  # the first refusal leaves nothing that the second one would believe
        with pytest.raises(CorruptHardStateError, match="both copies are gone, and perhaps a vote"):
            opened(tmp_path)
    assert not [name for name in FILES if (tmp_path / "n0" / name).exists()]


def test_a_store_that_never_was_born_has_no_vote_to_lose(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for name in FILES:
        (tmp_path / "n0" / name).unlink()
    store = opened(tmp_path)
    assert store.hard_state == HardState(current_term=0, voted_for=None)
    store.close()


def test_whoever_has_an_identity_has_a_hard_state(tmp_path: Path, monkeypatch) -> None:
    """A birth that a crash ended anywhere is none that lost something (test_crash_points, too)."""
    found: list[bool] = []

    def save(file: IdentityFile, identity: StoreIdentity) -> None:
        found.append(all((tmp_path / "n0" / name).exists() for name in FILES))
        real(file, identity)

    real = IdentityFile.save
    monkeypatch.setattr(IdentityFile, "save", save)
    store = opened(tmp_path)
    store.bear(b"")
    store.close()
    assert found == [True, True]
