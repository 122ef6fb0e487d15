"""Failpoints, faulty disks, wrong clocks and power failures of real brokers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from campaigns.rig.processes import ledgermq_here
from campaigns.rig.waiting import await_until, until
from chaos.cluster import cluster, failpoints, members, nodes
from chaos.cluster.access import PLAIN
from chaos.cluster.broker_status import BrokerStatus, query, query_all
from chaos.cluster.failpoints import Action, Arming, ClockSetting, FailpointError
from chaos.cluster.processes import ProcessTable
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from raft.log.disk import OsDisk
from raft.log.log_survey import LogSurvey
from raft.store.store_lock import StoreLockedError
from remoting.connections.rpc import RemotingClient

pytestmark = pytest.mark.cluster


class Group:
    """Three brokers with failpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        cluster.up(
            directory,
            namesrv_port=0,
            base_port=0,
            detach=True,
            failpoints=True,
            report=lambda _: None,
        )
        self.layout = cluster.load_layout(directory)
        self.table = ProcessTable(directory)

    @property
    def names(self) -> list[str]:
        return [place.name for place in self.layout.brokers]

    def address(self, name: str) -> str:
        return self.layout.broker(name).address

    def store(self, name: str) -> Path:
        return self.layout.store_directory(self.directory, self.layout.broker(name))

    def last_index(self, name: str) -> int:
        """Of the log on the disk of a dead broker."""
        return LogSurvey(OsDisk(self.store(name)), "commitlog").last_index

    def output(self, name: str) -> str:
        return self.table.output_file(name).read_text(encoding="utf-8")

    async def roles(self) -> tuple[str, list[str]]:
        """The leader and the followers, by process name, once all are up and one leads."""
        found: dict[str, str] = {}

        async def are_known() -> bool:
            answers = await query_all([place.address for place in self.layout.brokers])
            found.clear()
            found.update({f"{each.group}-{each.node}": each.role for each in answers.values()})
            ready = sum(each.ready for each in answers.values())
            return len(found) == len(self.layout.brokers) and ready == 1

        await until(are_known, "there is a leader")
        leader = next(name for name, role in found.items() if role == "leader")
        return leader, sorted(found.keys() - {leader})

    async def start(self, name: str) -> None:
        await asyncio.to_thread(nodes.start, self.directory, name, report=lambda _: None)

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(nodes.kill, self.directory, name, report=lambda _: None)

    def is_gone(self, name: str) -> bool:
        return self.table.find(name) is None

    async def send(self, count: int) -> int:
        """Send messages; returns how many were acknowledged."""
        stored = 0
        async with Producer("failpoints", list(self.layout.name_server_addresses)) as producer:
            for number in range(count):
                try:
                    await producer.send(Message(topic="Points", body=b"%d" % number * 100))
                except ClientError:
                    continue
                stored += 1
        return stored


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    directory = tmp_path_factory.mktemp("points") / "cluster"
    try:
        yield Group(directory)
    finally:
        cluster.down(directory)


async def status_of(client: RemotingClient, address: str) -> BrokerStatus | None:
    return await query(client, address)


async def test_a_broker_crashes_between_write_and_fsync_and_comes_back(group: Group) -> None:
    _, [victim, _] = await group.roles()
    assert await group.send(5) == 5
    client = PLAIN.client()
    try:
        point = "log.sync.before"
        before = await failpoints.hits(client, group.address(victim), point)
        await failpoints.arm(
            client, group.address(victim), Arming(point=point, action=Action.CRASH, after=1)
        )
        assert await group.send(5) == 5, "two of three go on"
        await until(lambda: group.is_gone(victim), "it has killed itself")
        assert f"failpoint {point}: crash" in group.output(victim)
        with pytest.raises(FailpointError):
            await failpoints.hits(client, group.address(victim), point)
        assert before.fired == 0
        await group.start(victim)
        assert (await failpoints.hits(client, group.address(victim), point)).fired == 0
        assert not any(
            each.armed for each in (await failpoints.report(client, group.address(victim))).points
        )
    finally:
        await client.close()


async def test_a_cluster_at_work_passes_its_points(group: Group) -> None:
    """What stands at the common way is passed; the rest needs snapshots, installs, damage."""
    await group.roles()
    await group.send(3)
    client = PLAIN.client()
    try:
        reports = [await failpoints.report(client, group.address(name)) for name in group.names]
    finally:
        await client.close()
    passed = {each.name for report in reports for each in report.points if each.hits}
    assert len(passed) >= 30, sorted(passed)
    assert {"reply.before", "propose.before", "apply.state.after", "register.after"} <= passed


async def test_delays_and_stuck_fsyncs_are_counted_and_end(group: Group) -> None:
    leader, _ = await group.roles()
    client, address = PLAIN.client(), group.address(leader)
    try:
        await failpoints.arm(
            client,
            address,
            Arming(point="disk.fsync", action=Action.STUCK, only="commitlog/*", ms=20_000),
            Arming(point="reply.before", action=Action.DELAY, ms=1, only="SEND*"),
        )
        assert await group.send(3) == 3, "a majority without it, or another leader"

        async def is_stuck() -> bool:
            return (await failpoints.hits(client, address, "disk.fsync")).waiting > 0

        await until(is_stuck, "an fsync hangs")
        report = await failpoints.disarm(client, address)
        assert not any(each.armed for each in report.points)

        async def goes_on() -> bool:
            return (await failpoints.hits(client, address, "disk.fsync")).waiting == 0

        await until(goes_on, "it goes on")
        status = await status_of(client, address)
        assert status is not None, "it still answers"
    finally:
        await client.close()


async def test_a_point_that_a_start_passes_is_armed_before_it(group: Group) -> None:
    _, [victim, _] = await group.roles()
    await group.kill(victim)
    failpoints.arm_at_start(
        group.directory, victim, [Arming(point="start.restore.before", action=Action.CRASH)]
    )
    with pytest.raises(cluster.ClusterError, match=r"start\.restore\.before: crash"):
        await group.start(victim)
    failpoints.disarm_at_start(group.directory, victim)
    await group.start(victim)


async def test_acknowledged_bytes_behind_a_lying_fsync_are_lost_and_repaired(group: Group) -> None:
    _, [victim, other] = await group.roles()
    client, address = PLAIN.client(), group.address(victim)
    try:
        lies = [
            Arming(point=point, action=Action.LIE)
            for point in ("disk.fsync", "disk.fsync_directory")
        ]
        before = await status_of(client, address)
        assert before is not None
        await failpoints.arm(client, address, *lies)
        assert await group.send(20) == 20

        async def has_all() -> bool:
            status = await status_of(client, address)
            return status is not None and status.applied_index >= before.last_index + 20

        await until(has_all, "the victim has acknowledged them")
        assert (await failpoints.hits(client, address, "disk.fsync")).fired > 0
        told = await status_of(client, address)
        assert told is not None
        with pytest.raises(StoreLockedError):
            failpoints.lose_unsynced(group.store(victim), patience_s=0)
        await group.kill(victim)
        assert group.last_index(victim) >= told.applied_index, "a kill alone"
        lost = failpoints.lose_unsynced(group.store(victim))
        assert any(path.startswith("commitlog/") for path in lost.changes)
        assert group.last_index(victim) < told.applied_index, "is no power failure"
        # Its leader knows what it acknowledged, and in one term never sends that again: the store
        # is as if it were another's. The next leader asks it where its log ends.
        await group.start(victim)
        await asyncio.to_thread(
            members.transfer, group.directory, other.rpartition("-")[2], report=lambda _: None
        )
        await until(has_all, "its peers have them")
    finally:
        await client.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_an_honest_disk_loses_nothing_that_was_acknowledged(group: Group, seed: int) -> None:
    leader, [victim, _] = await group.roles()
    client, address = PLAIN.client(), group.address(victim)
    try:
        assert await group.send(10) == 10
        leads = await status_of(client, group.address(leader))
        assert leads is not None

        async def is_synced() -> bool:
            """No round of fsync is under way, and all is here: so all was acknowledged."""
            status = await status_of(client, address)
            begun = (await failpoints.hits(client, address, "log.sync.before")).hits
            ended = (await failpoints.hits(client, address, "log.sync.after")).hits
            return status is not None and status.last_index == leads.last_index and begun == ended

        for _ in range(2):  # an append of this very turn has begun none yet
            await until(is_synced, "the victim has all")
        await group.kill(victim)
        failpoints.lose_unsynced(group.store(victim), random.Random(seed))
        log = LogSurvey(OsDisk(group.store(victim)), "commitlog")
        assert log.last_index == leads.last_index
        assert not list(log.verify())
        await group.start(victim)
    finally:
        await client.close()


async def test_a_failing_fsync_stops_the_broker(group: Group) -> None:
    _, [victim, _] = await group.roles()
    client, address = PLAIN.client(), group.address(victim)
    try:
        await failpoints.arm(
            client,
            address,
            Arming(point="disk.fsync", action=Action.ERROR, errno="EIO", only="commitlog/*"),
        )
        assert await group.send(3) == 3
        await until(lambda: group.is_gone(victim), "it has stopped")
        assert "Input/output error (failpoint disk.fsync)" in group.output(victim)
        await group.start(victim)
    finally:
        await client.close()


async def test_a_clock_is_put_wrong_and_right_again(group: Group) -> None:
    _, [victim, _] = await group.roles()
    client, address = PLAIN.client(), group.address(victim)
    try:
        report = await failpoints.put_clock(client, address, ClockSetting(offset_ms=-3_600_000))
        assert report.clock_off_ms == -3_600_000
        status = await status_of(client, address)
        assert status is not None
        assert status.clock_off_ms == -3_600_000
        await failpoints.put_clock(client, address, ClockSetting())
        assert (await failpoints.report(client, address)).clock_off_ms == 0
        failpoints.put_clock_at_start(group.directory, victim, ClockSetting(offset_ms=60_000))
        await group.kill(victim)
        await group.start(victim)
        assert (await failpoints.report(client, address)).clock_off_ms == 60_000
        failpoints.put_clock_at_start(group.directory, victim, None)
    finally:
        await client.close()


def test_by_hand(group: Group) -> None:
    _, [victim, _] = asyncio.run(group.roles())
    folder = str(group.directory)
    done = ledgermq_here("failpoints", "list", folder, victim, "--json")
    names = [each["name"] for each in json.loads(done.stdout)["points"]]
    assert len(names) >= 30
    done = ledgermq_here(
        "failpoints", "arm", folder, victim, "reply.before", "delay", "--ms", "1", "--count", "2"
    )
    assert done.returncode == 0
    assert '"count":2' in done.stdout
    wrong = ledgermq_here("failpoints", "arm", folder, victim, "reply.before", "error")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "error is not possible here" in wrong.stderr
    nonsense = ledgermq_here("failpoints", "arm", folder, victim, "reply.before", "explode")
    assert nonsense.returncode == 64
    assert ledgermq_here("failpoints", "disarm", folder, victim).stdout == "0 armed\n"
    done = ledgermq_here("failpoints", "clock", folder, victim, "--offset-ms", "60000")
    assert done.stdout.startswith("wall clock: +60000 ms")
    ledgermq_here("failpoints", "clock", folder, victim)
    running = ledgermq_here("failpoints", "lose-unsynced", folder, victim)
    assert running.returncode == 2
    group.table.signal(victim, SIGKILL)
    await_until(lambda: group.is_gone(victim), "it is dead")
    assert "lost" in ledgermq_here("failpoints", "lose-unsynced", folder, victim).stdout
    asyncio.run(group.start(victim))
