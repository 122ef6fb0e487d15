"""A store whose disk fills up: refused with RocketMQ's code and a remark; no node stops, nothing
acknowledged is lost, and once there is room all is well again.

The disk is a small tmpfs, so the tests need the right to mount (root); where that is not to be
had they are skipped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes, Stored, print_line, request, send_command
from campaigns.rig.waiting import await_until
from remoting.protocol.command import RemotingCommand

pytestmark = pytest.mark.cluster

DISK_BYTES = 48 << 20
WATERMARK_BYTES = 16 << 20


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A tmpfs of DISK_BYTES at `path`; unmounted in the end."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "ledgermq-test", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill_disk(store: Path, left: int) -> Path:
    """A file that leaves `left` bytes free, or less: the node writes meanwhile."""
    ballast = store / "ballast"
    deadline = time.monotonic() + 10
    with ballast.open("wb") as file:
        while True:
            free = os.statvfs(store).f_bavail * os.statvfs(store).f_frsize
            assert free > left
            try:
                os.posix_fallocate(file.fileno(), 0, free - left)
            except OSError as error:
                if error.errno != errno.ENOSPC or time.monotonic() > deadline:
                    raise
            else:
                break
    return ballast


def try_to_send(processes: Processes, name: str, key: str) -> RemotingCommand:
    address = processes.place(name).address
    answer = request(address, send_command("T", key.encode(), key))
    assert isinstance(answer, RemotingCommand), answer
    return answer


def test_a_leader_below_the_watermark_refuses_and_recovers(tmp_path: Path) -> None:
    with Processes(tmp_path / "cluster", replicas=1) as processes:
        (name,) = processes.brokers
        with small_disk(processes.store(name)) as store, processes:
            processes.start()
            kept = processes.send("T", b"before", "before")
            ballast = fill_disk(store, WATERMARK_BYTES // 2)
            await_until(
                lambda: try_to_send(processes, name, "probe").code != 0, "sends are refused"
            )
            refused = try_to_send(processes, name, "never")
            print_line(refused.remark)
            assert refused.code == 14
            assert "disk" in (refused.remark or "")
            assert str(WATERMARK_BYTES) in (refused.remark or "")
            offset = request(
                processes.place(name).address,
                RemotingCommand(code=30, ext_fields={"topic": "T", "queueId": "0"}),
            )
            assert isinstance(offset, RemotingCommand), offset
            assert offset.code == 0, "what is stored can still be read"
            assert "disk is full: sends are refused" in processes.output(name)
            pid = processes.pid(name)
            ballast.unlink()
            await_until(lambda: try_to_send(processes, name, "after").code == 0, "taken again")
            assert processes.pid(name) == pid
            assert "disk is no longer full: sends are taken again" in processes.output(name)
            assert processes.send("T", b"before", "before") == kept


def test_leadership_goes_to_a_replica_that_has_room(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = Processes(tmp_path / "cluster")
        for name in processes.brokers:
            stack.enter_context(small_disk(processes.store(name)))
        stack.enter_context(processes)
        processes.start()
        kept = processes.send("T", b"before", "before")
        full = processes.leader()
        ballast = fill_disk(processes.store(full), WATERMARK_BYTES // 2)
        await_until(lambda: "leadership goes to" in processes.output(full), "it hands over")
        processes.await_ready()
        assert processes.leader() != full
        processes.send("T", b"the group goes on", "after")
        assert processes.send("T", b"before", "before") == kept
        refused = try_to_send(processes, full, "never")
        assert refused.code == 14
        assert "not the leader" in (refused.remark or "")
        ballast.unlink()
        await_until(
            lambda: "disk is no longer full" in processes.output(full), "it sees that there is room"
        )


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_node_whose_disk_is_full_stays_and_recovers(tmp_path: Path, victim: str) -> None:
    """The disk fills faster than the watermark can tell: only what is set aside is left."""
    settings = {"disk_free_size_min": 1}
    with contextlib.ExitStack() as stack:
        processes = Processes(tmp_path / "cluster", broker_settings=settings)
        for name in processes.brokers:
            stack.enter_context(small_disk(processes.store(name)))
        stack.enter_context(processes)
        processes.start()
        acknowledged: dict[str, Stored] = {
            f"B{n}": processes.send("T", bytes(100_000), f"B{n}") for n in range(3)
        }
        leader = processes.leader()
        full = next(n for n in processes.brokers if (n == leader) == (victim == "leader"))
        pid = processes.pid(full)
        ballast = fill_disk(processes.store(full), 0)
        for number in range(120):  # more than the log of `full` has set aside
            key = f"W{number}"
            acknowledged[key] = processes.send("T", bytes(100_000), key)
        behind = processes.statuses()
        assert behind[full].last_index < behind[processes.leader()].last_index
        assert processes.pid(full) == pid, "it goes on, and waits for room"

        # It starts on the full disk: what a vote needs is there already.
        processes.kill(full)
        before = len(processes.output(full))
        processes.start_broker(full)
        acknowledged["goes-on-still"] = processes.send("T", b"and on", "goes-on-still")
        assert "Traceback" not in processes.output(full)[before:]

        ballast.unlink()
        if processes.table.find(full) is None:
            processes.start_broker(full)
        processes.await_ready()
        processes.await_caught_up()
        for key, place in acknowledged.items():
            body = b"and on" if key == "goes-on-still" else bytes(100_000)
            assert processes.send("T", body, key) == place
