"""A store's identity on disk, and how unborn stores find out that their group is new."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.sim.machine.disk import SimDisk, Survival
from chaos.sim.machine.violation import CrashNow
from raft.bootstrap.formation import Birth, Formation, Introduction
from raft.core.quorum import majority_count
from raft.log.disk import OsDisk
from raft.messages import NodeId
from raft.store.identity import CorruptIdentityError, IdentityFile, StoreIdentity

A, B, C, D = (NodeId(name) for name in "abcd")
VOTERS = (A, B, C)


def store(number: int) -> str:
    return f"{number:032x}"


# --- the file ------------------------------------------------------------------------------------


def identity(**changes: object) -> StoreIdentity:
    values: dict[str, object] = {
        "group": "broker-a",
        "node": A,
        "store_id": store(7),
        "born": True,
        "roster": b"configuration",
    }
    return StoreIdentity(**{**values, **changes})  # type: ignore[arg-type]  # test's free choice


def test_an_identity_comes_back(tmp_path: Path) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    assert file.load() is None
    for wanted in (identity(born=False, roster=b""), identity()):
        file.save(wanted)
        assert file.load() == wanted


def test_the_file_is_drawn_in_the_formats(tmp_path: Path) -> None:
    IdentityFile(OsDisk(tmp_path)).save(identity(store_id="0123456789abcdef" * 2, roster=b"r"))
    for name in ("identity", "identity.copy"):
        assert (tmp_path / name).read_bytes().hex() == (
            "4c4d514900000033"
            "9601a862726f6b65722d61a161d9203031323334353637383961626364656630313233343536373839616263646566c3c40172"
            "b7d5e17b"
        )


def damages(whole: bytes) -> Iterator[bytes]:
    for place in range(len(whole)):
        yield whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :]
        yield whole[:place]


@pytest.mark.parametrize("name", IdentityFile.PATHS)
def test_one_damaged_file_is_made_whole_from_the_other(tmp_path: Path, name: str) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    file.save(identity())
    path = tmp_path / name
    whole = path.read_bytes()
    for damaged in damages(whole):
        path.write_bytes(damaged)
        assert file.peek() == identity()
        assert path.read_bytes() == damaged, "to look at it changes nothing"
        assert file.load() == identity()
        assert path.read_bytes() == whole
    path.unlink()
    assert file.load() == identity()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("has_copy", [True, False], ids=["both damaged", "older than the copy"])
def test_every_damaged_byte_is_refused(tmp_path: Path, has_copy: bool) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    file.save(identity())
    path, copy = (tmp_path / name for name in IdentityFile.PATHS)
    if has_copy:
        copy.write_bytes(b"LMQI")
    else:
        copy.unlink()
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CorruptIdentityError):
            file.load()
        assert path.read_bytes() == damaged, "left as it is, for a person to look at"


def test_a_store_of_before_the_copy_gets_one(tmp_path: Path) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    file.save(identity())
    path, copy = (tmp_path / name for name in IdentityFile.PATHS)
    copy.unlink()
    assert file.load() == identity()
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("born", IdentityFile.PATHS)
def test_of_two_files_the_born_one_was_written_last(tmp_path: Path, born: str) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    file.save(identity())
    whole = (tmp_path / born).read_bytes()
    file.save(identity(born=False, roster=b""))
    (tmp_path / born).write_bytes(whole)
    assert file.load() == identity()
    assert {(tmp_path / name).read_bytes() for name in IdentityFile.PATHS} == {whole}


def test_two_stores_in_one_directory_are_refused(tmp_path: Path) -> None:
    file = IdentityFile(OsDisk(tmp_path))
    file.save(identity(store_id=store(8)))
    other = (tmp_path / "identity.copy").read_bytes()
    file.save(identity())
    (tmp_path / "identity.copy").write_bytes(other)
    with pytest.raises(CorruptIdentityError, match=f"names store {store(8)}"):
        file.load()


@pytest.mark.parametrize("name", IdentityFile.PATHS)
def test_without_room_one_whole_file_has_to_do(name: str) -> None:
    disk = SimDisk(random.Random(1))
    file = IdentityFile(disk)
    file.save(identity())
    disk.lose(name)
    disk.capacity_bytes = disk.used_bytes
    assert file.load() == identity()
    disk.capacity_bytes = None
    assert file.load() == identity()
    first, second = (disk.content(path) for path in IdentityFile.PATHS)
    assert first == second


def test_a_crash_leaves_one_of_two_identities() -> None:
    unborn = identity(born=False, roster=b"")
    for seed, operations in itertools.product(range(25), range(1, 20)):
        disk = SimDisk(random.Random(seed))
        IdentityFile(disk).save(unborn)
        disk.power_failure(Survival.NONE)
        assert IdentityFile(disk).load() == unborn, "durable once saved"
        disk.fuse = operations
        try:
            IdentityFile(disk).save(identity())
            is_saved = True
        except CrashNow:
            is_saved = False
        disk.fuse = 0
        disk.power_failure(random.Random(seed).choice(tuple(Survival)))
        found = IdentityFile(disk).load()
        assert found == identity() or (found == unborn and not is_saved)
        assert is_saved or operations < 15, "the fuse must burn within the save"
        disk.power_failure(Survival.NONE)
        assert IdentityFile(disk).load() == found, "what a start has read stays"


def test_an_unborn_store_has_no_roster() -> None:
    with pytest.raises(ValueError, match="no roster"):
        identity(born=False)
    with pytest.raises(ValueError, match="32 hex digits"):
        identity(store_id="short")


# --- formation -----------------------------------------------------------------------------------


class Node:
    """A store and what runs on it, with the messages that formation wants sent."""

    def __init__(self, name: NodeId, number: int, voters: tuple[NodeId, ...] = VOTERS) -> None:
        self.name = name
        self.voters = voters
        self.wipe(number)

    def wipe(self, number: int) -> None:
        self.store_id = store(number)
        self.roster: dict[NodeId, str] | None = None
        self.voted = False
        self.restart()

    def restart(self) -> None:
        """What is not durable is forgotten."""
        self.formation = Formation(node_id=self.name, store_id=self.store_id, voters=self.voters)
        if self.formation.is_alone:
            self.roster = self.formation.view

    @property
    def born(self) -> bool:
        return self.roster is not None

    def says(self) -> Introduction:
        return Introduction(
            sender=self.name,
            store_id=self.store_id,
            born=self.born,
            roster=dict(self.roster) if self.roster is not None else self.formation.view,
            membership=b"configuration" if self.born else b"",
        )

    def hear(self, said: Introduction) -> Birth | None:
        if self.born:
            return None
        birth = self.formation.hear(said)
        if birth is not None:
            self.roster = dict(birth.roster)
        return birth


def exchange(*nodes: Node, rounds: int = 4) -> None:
    for _ in range(rounds):
        for node in nodes:
            said = node.says()
            for other in nodes:
                if other is not node:
                    other.hear(said)


def three() -> tuple[Node, Node, Node]:
    return Node(A, 1), Node(B, 2), Node(C, 3)


def test_a_new_group_is_born_together() -> None:
    nodes = three()
    exchange(*nodes)
    assert [node.roster for node in nodes] == [{A: store(1), B: store(2), C: store(3)}] * 3


def test_two_of_three_wait_for_the_third() -> None:
    a, b, c = three()
    exchange(a, b)
    assert [node.born for node in (a, b)] == [False, False]
    exchange(a, b, c)
    assert [node.born for node in (a, b, c)] == [True, True, True]


def test_one_voter_is_born_alone() -> None:
    assert Node(A, 1, (A,)).roster == {A: store(1)}


def test_a_wiped_voter_stays_unborn_and_knows_why() -> None:
    a, b, c = three()
    exchange(a, b, c)
    c.wipe(4)
    exchange(a, b, c)
    assert not c.born
    assert c.formation.group_exists
    assert c.formation.replaced_by == store(3)


def test_two_wiped_voters_form_no_new_group_past_the_third() -> None:
    a, b, c = three()
    exchange(a, b, c)
    b.wipe(5)
    c.wipe(6)
    exchange(a, b, c)
    assert not b.born
    assert not c.born


def test_a_wiped_voter_is_born_where_a_configuration_names_its_new_store() -> None:
    a, b, c = three()
    exchange(a, b, c)
    c.wipe(4)
    exchange(a, b, c)
    assert a.roster is not None
    a.roster[C] = store(4)  # taken in again, as a learner
    birth = c.hear(a.says())
    assert birth == Birth(roster=a.roster, membership=b"configuration")


def test_a_crash_between_the_births_is_no_wipe() -> None:
    a, b, c = three()
    exchange(a, b)
    c.hear(a.says())
    c.hear(b.says())  # c knows all three, and knows that the others don't
    b.hear(c.says())
    a.hear(c.says())
    a.hear(b.says())
    assert not c.born
    assert a.born, "it knows that b and c know"
    c.restart()  # with its store, before it was born
    birth = c.hear(a.says())
    assert birth is not None
    assert birth.membership == b"configuration", "it bears what a was born with"


def test_a_new_node_waits_until_it_is_added() -> None:
    a, b, c = three()
    exchange(a, b, c)
    d = Node(D, 4, (A, B, C, D))
    exchange(a, b, c, d)
    assert not d.born
    assert d.formation.group_exists
    assert d.formation.replaced_by is None, "nobody knows its name"


def test_an_empty_store_in_a_group_older_than_identities_is_not_trusted() -> None:
    a, b, c = three()
    for node in (a, b):
        node.roster = {A: "", B: "", C: ""}
    exchange(a, b, c)
    assert not c.born
    assert c.formation.replaced_by == ""


def test_strangers_have_no_say() -> None:
    a, b, c = three()
    d = Node(D, 4, (A, B, C, D))
    exchange(a, b, d)
    assert not a.born
    exchange(a, b, c)
    assert a.roster == {A: store(1), B: store(2), C: store(3)}


def test_a_superseded_store_does_not_come_back() -> None:
    a, b, c = three()
    late = c.says()
    exchange(a, c, rounds=1)
    c.wipe(4)
    exchange(a, c, rounds=1)
    a.hear(late)
    assert a.formation.view[C] == store(4)
    exchange(a, b, c)
    assert a.roster == {A: store(1), B: store(2), C: store(4)}


@pytest.mark.parametrize("count", [3, 5])
def test_wipes_and_restarts_never_elect_two_leaders_in_a_term(count: int) -> None:
    """A minority of the stores is wiped at any moment, messages are late or lost: each store
    votes once in the term, and no two majorities come together. In the end all that can be born
    are."""
    births = 0
    for seed in range(1500):
        births += _walk(random.Random(seed), count)
    assert births > 1500, "the walks must get anywhere"


def _walk(rng: random.Random, count: int) -> int:
    names = tuple(NodeId(f"n{i}") for i in range(count))
    nodes = {name: Node(name, number + 1, names) for number, name in enumerate(names)}
    wipes_left = count - majority_count(count)
    leaders: set[str] = set()
    sent: list[tuple[NodeId, Introduction]] = []
    for step in range(120):
        node = nodes[rng.choice(names)]
        match rng.randrange(12):
            case 0 if wipes_left:
                wipes_left -= 1
                node.wipe(100 + step)
            case 1:
                node.restart()
            case 2 if node.roster is not None:
                leader = _campaign(node, nodes)
                if leader is not None:
                    leaders.add(leader)
            case 3 | 4 | 5:
                sent += [(name, node.says()) for name in names if name != node.name]
            case _ if sent:
                receiver, said = sent.pop(rng.randrange(len(sent)))
                nodes[receiver].hear(said)
                if rng.random() < 0.2:
                    sent.append((receiver, said))  # repeated, and late
        assert len(leaders) <= 1, f"two leaders in one term: {leaders}"
    exchange(*nodes.values())
    rosters = {tuple(sorted(node.roster.items())) for node in nodes.values() if node.roster}
    majority = [node for node in nodes.values() if node.born]
    assert len(rosters) <= 1 or len(majority) < majority_count(count)
    return len(majority)


def _campaign(candidate: Node, nodes: dict[NodeId, Node]) -> str | None:
    """Ask everybody in the roster; the store that won."""
    assert candidate.roster is not None
    asked = [nodes[name] for name, known in candidate.roster.items()]
    granted = [
        node
        for node in asked
        if node.born and not node.voted and candidate.roster[node.name] == node.store_id
    ]
    for node in granted:
        node.voted = True
    won = len(granted) >= majority_count(len(candidate.roster))
    return candidate.store_id if won else None
