"""Syncs beside the loop on the disk that can be told to fail: none slips past what is armed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.failpoints.catalogue import DISK_POINTS
from broker.failpoints.faulty_disk import FaultyDisk, FaultyFile
from broker.failpoints.orders import Action, Arming
from broker.failpoints.points import FailPoint
from broker.failpoints.undo_journal import lose_unsynced
from campaigns.rig.waiting import until
from raft.log.disk import OsDisk, OsDiskFile
from raft.storage import OnSynced


class _Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.points = {row.name: FailPoint(row) for row in DISK_POINTS}
        self.disk = FaultyDisk(root, self.points)
        self.told: list[OSError | None] = []

    def open(self) -> FaultyFile:
        return self.disk.open("log", create=True)

    def arm(self, action: Action, **how: object) -> None:
        self.point.arm(Arming(point="disk.fsync", action=action, **how))  # type: ignore[arg-type]

    @property
    def point(self) -> FailPoint:
        return self.points["disk.fsync"]

    async def until_told(self, count: int = 1) -> None:
        await until(lambda: len(self.told) == count, "its report")

    def lost(self) -> bytes:
        """What a power failure leaves of the file."""
        lose_unsynced(self.root)
        return (self.root / "log").read_bytes()


@pytest.fixture(params=["kernel AIO", "another disk's own way"])
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[_Bench]:
    """Where this machine has no kernel AIO, the loop takes its place."""
    made = _Bench(tmp_path)
    if request.param == "kernel AIO":
        (tmp_path / "trial").write_bytes(b"")
        try:
            OsDisk(tmp_path).open_syncs("trial")
        except OSError as error:
            pytest.skip(str(error))
        made.disk.open_syncs("trial")
    else:

        def by_loop(file: OsDiskFile, on_done: OnSynced) -> bool:
            asyncio.get_running_loop().call_soon(on_done, None)
            return True

        monkeypatch.setattr(OsDiskFile, "begin_sync", by_loop)
    made.open().close()
    made.disk.sync_directory("")
    yield made
    made.point.disarm()
    made.disk.close_syncs()


async def test_unarmed_it_is_counted_and_covers_what_was_there(bench: _Bench) -> None:
    file = bench.open()
    file.pwritev([b"before"], 0)
    before = bench.point.report().hits
    assert file.begin_sync(bench.told.append)
    file.pwritev([b"later"], 6)
    await bench.until_told()
    assert bench.told == [None]
    assert bench.point.report().hits == before + 1
    assert bench.lost() == b"before"


async def test_an_armed_error_comes_late_and_covers_nothing(bench: _Bench) -> None:
    file = bench.open()
    file.pwritev([b"x"], 0)
    bench.arm(Action.ERROR, errno="EIO")
    assert file.begin_sync(bench.told.append)
    assert bench.told == []
    await bench.until_told()
    assert bench.told[0] is not None
    assert bench.told[0].errno == errno.EIO
    assert bench.lost() == b""


async def test_a_lie_is_told_as_done(bench: _Bench) -> None:
    file = bench.open()
    file.pwritev([b"x"], 0)
    bench.arm(Action.LIE)
    assert file.begin_sync(bench.told.append)
    await bench.until_told()
    assert bench.told == [None]
    assert bench.point.report().fired == 1
    assert bench.lost() == b""


async def test_one_that_is_stuck_holds_up_nothing_but_itself(bench: _Bench) -> None:
    file = bench.open()
    file.pwritev([b"x"], 0)
    bench.arm(Action.STUCK)
    assert file.begin_sync(bench.told.append)
    await until(lambda: bench.point.report().waiting == 1, "it is stuck")
    assert bench.told == [], "the loop goes on meanwhile"
    bench.point.disarm()
    assert bench.disk.wait_for_syncs() is None, "who needs it waits"
    assert bench.lost() == b"x", "and it was done"
    await bench.until_told()
    assert bench.told == [None]


async def test_who_waits_has_the_armed_error(bench: _Bench) -> None:
    bench.arm(Action.ERROR, errno="EIO")
    assert bench.open().begin_sync(bench.told.append)
    failure = bench.disk.wait_for_syncs()
    assert failure is not None
    assert failure.errno == errno.EIO
    assert bench.told == []
    await bench.until_told()
    assert bench.told == [failure]
