"""Each fault of stores damages one node's files, sees it, and is healed once they are repaired."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.nemesis.base import Fault, FaultNotPossibleError
from chaos.nemesis.catalogue import CATALOGUE
from chaos.systems.store_files import DirectoryFiles
from tests.chaos.nemesis import fakes

DERIVED = ["lost-derived-files", "rotten-derived-files"]
ROTTEN = ["torn-tail", "bit-rot", "zeroed-page", "stale-block", "lost-file", *DERIVED]
REPAIRED = {"bit-rot", "zeroed-page", "stale-block", "lost-file"}
SEGMENT = "commitlog/00000000000000000000"


class Stores:
    """A store per node in a directory, all alike but for the identity."""

    def __init__(self, root: Path, nodes: list[str]) -> None:
        self._root = root
        data = random.Random(1).randbytes(40_000)
        for node in nodes:
            self.files(node).restore_all(
                {
                    SEGMENT: data + bytes(10_000),
                    "commitlog/00000000000000050000": data[:20_000] + bytes(30_000),
                    "consumequeue/orders/0/00000000000000000000": data[:2_000],
                    "identity": node.encode(),
                }
            )
            (root / node / "trace").mkdir()
            (root / node / "trace" / "000001").write_bytes(b"evidence")

    def files(self, node: str) -> DirectoryFiles:
        return DirectoryFiles(self._root / node)

    def lose_unsynced(self, node: str) -> str | None:
        return None


@pytest.fixture
def world(tmp_path: Path) -> fakes.FakeWorld:
    world = fakes.FakeWorld()
    world.stores = Stores(tmp_path, [place.name for place in world.layout.brokers])
    return world


def statuses(**changed) -> dict:
    names = [f"{fakes.GROUP}-n{i}" for i in range(3)]
    return {name: changed.get(name[-2:], fakes.status(name[-2:])) for name in names}


def make(world: fakes.FakeWorld, name: str, **more) -> Fault:
    spec = CATALOGUE[name]
    more.setdefault("statuses", statuses())
    return spec.make(fakes.context(world, **more, **spec.parameters))


@pytest.mark.parametrize("name", ROTTEN)
async def test_damage_is_seen_and_healed_once_it_is_repaired(
    world: fakes.FakeWorld, name: str, tmp_path: Path
) -> None:
    before = {node: world.stores.files(node).copy_all() for node in statuses()}
    fault = make(world, name)
    await fault.setup()
    (node,) = fault.targets
    assert node != world.leader()
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert world.states[node] == "gone"
    seen = await fault.probe()
    assert seen.seen is True, seen.evidence
    after = {each: world.stores.files(each).copy_all() for each in statuses()}
    assert [each for each in before if after[each] != before[each]] == [node]
    assert (tmp_path / node / "trace" / "000001").read_bytes() == b"evidence"
    assert (await fault.probe_healed()).seen is False, "the node is gone"
    await fault.heal()
    assert (await fault.probe_healed()).seen is (name not in REPAIRED)
    world.stores.files(node).restore_all(before[node])
    assert (await fault.probe_healed()).seen is True
    assert world.untouched


@pytest.mark.parametrize("name", [*ROTTEN, "wiped-store", "old-copy", "foreign-disk"])
async def test_no_last_good_copy_is_damaged(world: fakes.FakeWorld, name: str) -> None:
    for bad in (fakes.status("n1", phase="repairing"), None):
        known = statuses(n1=bad)
        if bad is None:
            del known[f"{fakes.GROUP}-n1"]
        fault = CATALOGUE[name].make(
            fakes.context(world, statuses=known, **{**CATALOGUE[name].parameters, "target": "any"})
        )
        if bad is None:
            world.states[f"{fakes.GROUP}-n1"] = "gone"  # so that it is not chosen itself
        try:
            await fault.setup()
        except FaultNotPossibleError as error:
            assert "last good copy" in str(error)  # noqa: PT017 - chosen itself, it may be damaged
        else:
            assert fault.targets == [f"{fakes.GROUP}-n1"]
        assert not world.calls


async def test_an_empty_log_can_not_be_damaged(world: fakes.FakeWorld) -> None:
    for node in statuses():
        world.stores.files(node).restore_all({SEGMENT: bytes(1000)})
    fault = make(world, "bit-rot")
    await fault.setup()
    with pytest.raises(FaultNotPossibleError, match="holds nothing yet"):
        await fault.inject()
    await fault.heal()
    assert world.untouched


async def test_a_foreign_disk_is_taken_out_again(world: fakes.FakeWorld) -> None:
    fault = make(world, "foreign-disk")
    await fault.setup()
    (node,) = fault.targets
    own = world.stores.files(node).copy_all()
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert (await fault.probe()).seen is True
    assert world.stores.files(node).copy_all()["identity"] != node.encode()
    await fault.heal()
    assert world.stores.files(node).copy_all() == own
    assert (await fault.probe_healed()).seen is True
    assert world.untouched


def test_edits_stay_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    files = DirectoryFiles(tmp_path / "store")
    assert files.names() == []
    files.restore_all({"a/b": b"xy" + bytes(5)})
    assert (files.names(), files.size("a/b")) == (["a/b"], 7)
    files.write("a/b", 1, b"z")
    files.truncate("a/b", 4)
    assert files.copy_all() == {"a/b": b"xz\0\0"}
    for name in ("../outside", "/etc/passwd", "trace/000001", "lock"):
        with pytest.raises(OSError, match="no file of the store"):
            files.write(name, 0, b"y")
    files.remove("a/b")
    assert files.names() == []


async def test_a_node_that_drafts_a_snapshot_is_killed_at_it(world: fakes.FakeWorld) -> None:
    fault = make(world, "kill-in-snapshot")
    await fault.setup()
    (node,) = fault.targets

    async def terminate(name: str, *, timeout_s: float) -> bool:
        world.calls.append(f"terminate {name}")
        files = world.stores.files(name)
        files.restore_all({**files.copy_all(), "snapshots/5.tmp": b"half"})
        return True

    world.terminate = terminate  # type: ignore[method-assign]
    await fault.inject()
    for _ in range(200):
        observation = await fault.probe()
        if observation.seen is not False:
            break
        await fakes.pause_s(0.005)
    assert observation.seen is True, observation.evidence
    assert "snapshots/5.tmp" in observation.evidence
    await fault.heal()
    assert world.states[node] == "S"
