"""A node with an older release: seen by what it answers, and rolled back to its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from broker.admin.release import VERSION, release
from chaos.cluster.layout import fixed_ports, lay_out
from chaos.nemesis.base import Fault, FaultNotPossibleError
from chaos.nemesis.catalogue import CATALOGUE
from chaos.systems.base import SystemFailedError
from chaos.systems.ledgermq_releases import LedgermqReleases, release_problem, unpack_release
from remoting.connections.rpc import RemotingClient
from tests.chaos.nemesis import fakes

ROOT = Path(__file__).parents[3]
FOLLOWERS = {"broker-a-n1", "broker-a-n2"}


class FakeReleases:
    """`deaf`: every node runs its own release, whatever was asked for."""

    older = "0.1"

    def __init__(self, world: fakes.FakeWorld, *, deaf: bool) -> None:
        self._world = world
        self._deaf = deaf
        self.with_older: set[str] = set()

    def at_next_start(self, node: str, *, older: bool) -> None:
        if older and not self._deaf:
            self.with_older.add(node)
        else:
            self.with_older.discard(node)

    async def answered(self, node: str) -> str | None:
        if self._world.states[node] == "gone":
            return None
        return "unnamed" if node in self.with_older else "0.2+own"


def a_fault(*, deaf: bool = False) -> tuple[fakes.FakeWorld, Fault]:
    world = fakes.FakeWorld()
    world.releases = FakeReleases(world, deaf=deaf)
    spec = CATALOGUE["older-release"]
    return world, spec.make(fakes.context(world, **spec.parameters))


async def test_inject_is_seen_and_heal_is_seen() -> None:
    world, fault = a_fault()
    await fault.setup()
    (node,) = fault.targets
    assert node in FOLLOWERS
    assert not world.calls
    assert (await fault.probe()).seen is not True
    await fault.inject()
    seen = await fault.probe()
    assert seen.seen is True
    assert seen.evidence == f"started with 0.1: {node} answers unnamed (before: 0.2+own)"
    assert (await fault.probe_healed()).seen is not True
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert not world.releases.with_older
    assert world.untouched


async def test_a_node_that_answers_as_before_is_not_seen() -> None:
    _, fault = a_fault(deaf=True)
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is False


async def test_one_that_ends_at_its_start_is_not_seen_and_comes_back() -> None:
    world, fault = a_fault()
    await fault.setup()
    await fault.inject()
    world.states[fault.targets[0]] = "gone"
    assert (await fault.probe()).seen is False
    await fault.heal()
    assert (await fault.probe_healed()).seen is True


async def test_nothing_is_done_to_a_node_that_does_not_answer() -> None:
    world, fault = a_fault()
    world.states |= dict.fromkeys(FOLLOWERS, "gone")
    with pytest.raises(FaultNotPossibleError):
        await fault.setup()
    assert not world.calls


async def test_only_its_own_program_is_another(tmp_path: Path) -> None:
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports)
    releases = LedgermqReleases("0.1", tmp_path, lambda: layout, RemotingClient)
    argv = ["python", "-m", "ledgermq", "broker"]
    releases.at_next_start("broker-a-n1", older=True)
    assert releases.command("broker-a-n0", argv) == argv
    path = f"PYTHONPATH={tmp_path}"
    assert releases.command("broker-a-n1", argv) == [
        "/usr/bin/env",
        path,
        "python",
        "-P",
        *argv[1:],
    ]
    releases.at_next_start("broker-a-n1", older=False)
    assert releases.command("broker-a-n1", argv) == argv


def test_what_is_no_release_is_refused_by_its_name(tmp_path: Path) -> None:
    assert release_problem(str(ROOT)) is None
    assert "holds no source" in str(release_problem(str(tmp_path)))
    assert "no commit or tag" in str(release_problem("never-tagged"))
    with pytest.raises(SystemFailedError, match="never-tagged"):
        unpack_release("never-tagged", tmp_path)
    assert unpack_release(str(ROOT), tmp_path) == ROOT


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no repository to take a commit from")
def test_a_commit_is_unpacked(tmp_path: Path) -> None:
    source = unpack_release("HEAD", tmp_path / "release")
    shown = subprocess.run(
        ["git", "-C", ROOT, "show", "HEAD:ledgermq/__main__.py"], capture_output=True, check=True
    )
    assert (source / "ledgermq" / "__main__.py").read_bytes() == shown.stdout


def test_a_broker_names_the_version_of_its_package() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert release().startswith(f"{VERSION}+")
