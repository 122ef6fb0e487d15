"""Seeds of a master and its slaves: some pass, planted bugs don't, and each rule can say no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from broker.ha import commit_log
from broker.ha.commit_log import CommitLog
from broker.ha.engine import HaLog
from broker.ha.flusher import Flusher
from broker.ha.master_link import MasterLink
from broker.ha.slaves import Slaves
from broker.ha.state_keeper import StateKeeper
from chaos.sim.campaign.campaign import replay, run_seed
from chaos.sim.campaign.seeds import make_run
from chaos.sim.ha.log_book import Answer, Entry, LogBook, Message, Opened
from chaos.sim.machine.violation import Violation
from raft.messages import LogBase, NodeId
from raft.replicated_log import ProposalStatus as Status
from raft.replicated_log import StateDivergedError

MASTER, SLAVE = NodeId("n0"), NodeId("n1")


_LONG = [pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 3, 19, 536)]


@pytest.mark.parametrize("seed", [*_LONG, 2, *range(4, 9), 30, 37, 942])
def test_a_seed_passes(seed: int) -> None:
    failure, counts = run_seed(seed, None, kind="ha")
    assert failure is None, str(failure)
    assert counts["entries_of_masters"] > 0


def test_a_replay_is_the_same_course() -> None:
    first, second = replay(9, None, kind="ha"), replay(9, None, kind="ha")
    assert first.digest == second.digest
    assert first.schedule == make_run(9, kind="ha").schedule


# --- planted bugs ------------------------------------------------------------------------------


@contextmanager
def page_cache_believed() -> Iterator[None]:
    with patch.object(commit_log, "settle", lambda file: file.sync()):
        yield


@contextmanager
def repeated_send_believed() -> Iterator[None]:
    with patch.object(HaLog, "confirm", lambda log, on_done: on_done(Status.COMMITTED)):
        yield


@contextmanager
def silent_cut() -> Iterator[None]:
    """A slave that takes what its master pushes for what it has, without a look, wherever the
    master is."""

    async def wait(_link: MasterLink, _position: int) -> None:
        """Do nothing: the master will come."""

    with (
        patch.object(MasterLink, "_comparison_begin", lambda link: link._log.end),
        patch.object(MasterLink, "_master_is_elsewhere", wait),
    ):
        yield


@contextmanager
def one_slave_is_enough() -> Iterator[None]:
    real = Slaves.replicated_position
    with patch.object(Slaves, "replicated_position", lambda slaves, count: real(slaves, 1)):
        yield


@contextmanager
def retention_as_asked() -> Iterator[None]:
    """Retention that heeds no snapshot."""
    with patch.object(StateKeeper, "safe_position", property(lambda _keeper: 1 << 60)):
        yield


@contextmanager
def strange_log_taken() -> Iterator[None]:
    """A slave that cuts its whole log for a master with which it has nothing in common."""

    async def cut(link: MasterLink, why: str, position: int) -> None:
        await link._before_cut()
        link._log.truncate(link._place_before(position))
        raise StateDivergedError(why)

    with patch.object(MasterLink, "_cut", cut):
        yield


@contextmanager
def damage_taken_for_a_torn_tail() -> Iterator[None]:
    """A start that cuts its log off at damage in the last file, durable or not."""
    real = CommitLog._recover

    def recover(log: CommitLog) -> LogBase:
        log.durable = log._last_begin
        return real(log)

    with patch.object(CommitLog, "_recover", recover):
        yield


@contextmanager
def slave_answers_for_its_master() -> Iterator[None]:
    async def read_index(log: HaLog) -> int:
        return log._applied.index

    with patch.object(HaLog, "read_index", read_index):
        yield


@contextmanager
def later_fsyncs_forgotten() -> Iterator[None]:
    """Who waits for more than the fsync under way has is forgotten when that ends."""
    real = Flusher._claimed_up_to

    def claimed(flusher: Flusher, position: int) -> None:
        flusher._waiting = [one for one in flusher._waiting if one[0] <= position]
        real(flusher, position)

    with patch.object(Flusher, "_claimed_up_to", claimed):
        yield


class _KeepsAll(list[object]):
    def remove(self, _slave: object) -> None:
        """Keep it."""


@contextmanager
def slave_that_has_gone_counts() -> Iterator[None]:
    real = Slaves.__init__

    def make(slaves: Slaves, *parts: object) -> None:
        real(slaves, *parts)  # type: ignore[arg-type]
        slaves._slaves = _KeepsAll()  # type: ignore[assignment]

    with patch.object(Slaves, "__init__", make):
        yield


@contextmanager
def fastest_slave_counts() -> Iterator[None]:
    """Retention that leaves what one slave has, however far the other one is behind."""

    def position(slaves: Slaves) -> int | None:
        return max((one.reported for one in slaves._slaves if one.reported >= 0), default=None)

    with patch.object(Slaves, "slowest_position", property(position)):
        yield


@pytest.mark.parametrize(
    ("planted", "seed", "rule"),
    [
        (slave_that_has_gone_counts, 2, "H4"),
        (strange_log_taken, 37, "H1"),
        (retention_as_asked, 7, "H1"),
        (page_cache_believed, 156, "H3"),
        (repeated_send_believed, 2, "H3"),
        (silent_cut, 1, "liveness"),
        (one_slave_is_enough, 3, "H3"),
        (damage_taken_for_a_torn_tail, 5, "H1"),
        (slave_answers_for_its_master, 1, "H5"),
        (later_fsyncs_forgotten, 1, "H7"),
        (fastest_slave_counts, 59, "H1"),
    ],
)
def test_a_planted_bug_is_seen(planted: Callable[[], object], seed: int, rule: str) -> None:
    with planted():  # type: ignore[attr-defined]
        failure, _ = run_seed(seed, None, kind="ha")
    assert failure is not None
    assert failure.rule == rule


# --- the book ----------------------------------------------------------------------------------


def book(*, slaves: bool = False, disk: bool = False) -> LogBook:
    return LogBook(
        Counter(), MASTER, waits_for_slaves=slaves, waits_for_disk=disk, in_sync_replicas=2
    )


def filled(log: LogBook, count: int = 3) -> list[Entry]:
    return [log.on_appended(n, 100 + n, 10 * n, (message(n),)) for n in range(1, count + 1)]


def message(number: int) -> Message:
    return Message(
        topic="T", queue_id=0, queue_offset=number - 1, position=10 * number, value=f"v{number}"
    )


def opened(last: int, first: int = 1) -> Opened:
    return Opened(first=first, chains=[100 + n for n in range(first, last + 1)])


def answer(log: LogBook, entry: Entry, status: Status, **values: object) -> None:
    known = {"waited_ms": 0, "disk_timeout_ms": 50, "slave_timeout_ms": 30}
    log.on_answered(entry, Answer(status=status, **{**known, **values}))  # type: ignore[arg-type]


def test_an_answer_comes_in_time() -> None:
    log = book(slaves=True, disk=True)
    (entry, *_) = filled(log)
    log.on_applied(SLAVE, 1, 101)
    answer(log, entry, Status.COMMITTED, waited_ms=52, is_on_disk=True)
    answer(log, entry, Status.COMMITTED, waited_ms=900, was_paused=True)
    with pytest.raises(Violation, match="52 is the most"):
        answer(log, entry, Status.COMMITTED, waited_ms=53)


def test_slaves_are_available_where_they_are() -> None:
    log = book(slaves=True)
    (entry, *_) = filled(log)
    log.on_applied(SLAVE, 1, 101)
    answer(log, entry, Status.COMMITTED, slaves_at_most=1, slaves_at_least=1)
    answer(log, entry, Status.SLAVE_NOT_AVAILABLE, slaves_at_most=1)
    answer(log, entry, Status.STOPPED, slaves_at_most=0)
    for status in (Status.COMMITTED, Status.FLUSH_SLAVE_TIMEOUT):
        with pytest.raises(Violation, match="0 slaves are there, not 1"):
            answer(log, entry, status, waited_ms=30, slaves_at_most=0)
    with pytest.raises(Violation, match="1 slaves follow, 1 is enough"):
        answer(log, entry, Status.SLAVE_NOT_AVAILABLE, slaves_at_most=1, slaves_at_least=1)
    command = log.on_appended(4, 104, 40, ())
    answer(log, command, Status.COMMITTED, slaves_at_most=0)


def test_retention_leaves_what_a_follower_lacks_and_no_more() -> None:
    log = book()
    log.on_shortened_for(MASTER, 20, ())
    log.on_size(MASTER, 100, 100)
    with pytest.raises(Violation, match="begins at 20 now, and n1 lacks it"):
        log.on_shortened_for(MASTER, 20, [SLAVE])
    with pytest.raises(Violation, match="101 bytes, 100 is the most"):
        log.on_size(MASTER, 101, 100)


def test_an_entry_without_messages_waits_for_no_slave() -> None:
    log = book(slaves=True)
    command = log.on_appended(1, 101, 10, ())
    answer(log, command, Status.COMMITTED)
    with pytest.raises(Violation, match="no slave is waited for"):
        answer(log, command, Status.SLAVE_NOT_AVAILABLE)
    with pytest.raises(Violation, match="after 30 ms"):
        answer(log, command, Status.FLUSH_SLAVE_TIMEOUT, waited_ms=30)


def test_a_log_is_found_as_it_was() -> None:
    log = book()
    filled(log)
    log.on_opened(MASTER, opened(3), ())
    with pytest.raises(Violation, match="neither lost power nor cut"):
        log.on_opened(MASTER, opened(2), ())


def test_what_was_claimed_is_found_after_a_failure_of_power() -> None:
    log = book()
    filled(log)
    log.on_claimed(MASTER, 2)
    log.on_disk_failed(MASTER)
    log.on_opened(MASTER, opened(2), ())
    assert [entry.index for entry in log.entries] == [1, 2]
    log.on_disk_failed(MASTER)
    with pytest.raises(Violation, match="claimed 2 durable"):
        log.on_opened(MASTER, opened(1), ())


def test_what_was_told_with_flush_sync_is_never_lost() -> None:
    log = book(disk=True)
    entries = filled(log)
    answer(log, entries[2], Status.COMMITTED, is_on_disk=True)
    with pytest.raises(Violation, match="a failure of power may take it"):
        answer(log, entries[1], Status.COMMITTED)
    log.on_disk_failed(MASTER)
    with pytest.raises(Violation, match="entry 3 was on the master's disk, and is lost"):
        log.on_opened(MASTER, opened(2), ())


def test_a_log_has_nothing_of_no_master() -> None:
    log = book()
    filled(log)
    for node in (MASTER, SLAVE):
        with pytest.raises(Violation, match="of no master"):
            log.on_opened(node, Opened(first=1, chains=[101, 102, 103, 9]), ())


def test_an_entry_of_the_masters_last_moment_is_found_by_its_start() -> None:
    log = book()
    filled(log)
    last = Entry(index=4, chain=104, end=40, messages=())
    log.on_opened(MASTER, opened(4), [last])
    assert len(log.entries) == 4


def test_a_slave_applies_what_its_master_appended_in_order() -> None:
    log = book()
    filled(log)
    log.on_applied(SLAVE, 1, 101)
    with pytest.raises(Violation, match="not 2"):
        log.on_applied(SLAVE, 3, 103)
    log.on_starting(SLAVE)
    with pytest.raises(Violation, match="which no master appended"):
        log.on_applied(SLAVE, 2, 999)


def test_a_slave_drops_what_it_had_only_where_it_says_so() -> None:
    log = book()
    filled(log)
    log.on_opened(SLAVE, opened(3), ())
    with pytest.raises(Violation, match="nor cut its log"):
        log.on_opened(SLAVE, opened(1), ())
    log.on_disk_failed(MASTER)
    log.on_opened(MASTER, opened(1), ())
    log.on_cut(SLAVE, 1, first=1)
    log.on_opened(SLAVE, opened(1), ())
    with pytest.raises(Violation, match="is the master"):
        log.on_cut(MASTER, 1, first=1)


def test_a_cut_takes_what_the_master_has_not_and_never_the_whole_log() -> None:
    log = book()
    filled(log)
    for index in (1, 2):
        log.on_applied(SLAVE, index, 100 + index)
    with pytest.raises(Violation, match="cuts entry 2, and n0 has it too"):
        log.on_cut(SLAVE, 1, first=1)
    with pytest.raises(Violation, match="cuts its whole log, from entry 2 on"):
        log.on_cut(SLAVE, 1, first=2)


def test_retention_leaves_two_snapshots_their_log() -> None:
    log = book()
    log.on_shortened(MASTER, 20, [10, 20, 30])
    with pytest.raises(Violation, match="begins at 21 now, and its snapshots end at 10, 20, 30"):
        log.on_shortened(MASTER, 21, [30, 10, 20])


def test_logs_of_which_one_was_lost_whole_share_nothing() -> None:
    log = book()
    first = filled(log)
    log.on_applied(SLAVE, 1, 101)
    assert not log.share_nothing(SLAVE, MASTER)
    log.on_disk_failed(MASTER)
    log.on_opened(MASTER, opened(0), ())
    assert not log.share_nothing(SLAVE, MASTER), "an empty one parts from none"
    log.on_appended(1, 201, first[0].end, ())
    assert log.share_nothing(SLAVE, MASTER)


def test_a_master_without_its_disk_begins_a_log_of_its_own() -> None:
    log = book(disk=True)
    for entry in filled(log):
        log.on_applied(SLAVE, entry.index, entry.chain)
        entry.is_acknowledged = True
    log.on_wiped(MASTER)
    log.on_opened(MASTER, opened(0), ())
    log.on_appended(1, 201, 10, ())
    assert log.share_nothing(SLAVE, MASTER)
    log.on_made_master(SLAVE)
    assert [entry.chain for entry in log.entries] == [101, 102, 103]
    log.on_disk_failed(SLAVE)
    log.on_opened(SLAVE, opened(2), ())
    assert len(log.entries) == 2, "what a slave has is not durable before it is opened"
    log.on_disk_failed(SLAVE)
    with pytest.raises(Violation, match="told SEND_OK, and is lost"):
        log.on_opened(SLAVE, opened(1), ())


def test_a_former_master_has_what_it_appended_last() -> None:
    log = book()
    (first, *_) = filled(log, 2)
    log.on_applied(SLAVE, 1, first.chain)
    log.on_made_master(SLAVE)
    last = Entry(index=3, chain=103, end=30, messages=(message(3),))
    log.on_opened(MASTER, opened(3), (last,))
    assert [entry.index for entry in log.entries] == [1]
    log.on_cut(MASTER, 1, first=1)
    log.on_opened(MASTER, opened(1), ())
    log.on_appended(2, 302, 20, ())


def test_sync_is_answered_once_the_nodes_have_it() -> None:
    log = book(slaves=True)
    entry, *_ = filled(log)
    with pytest.raises(Violation, match="n0 alone had it"):
        answer(log, entry, Status.COMMITTED)
    log.on_applied(SLAVE, 1, 101)
    answer(log, entry, Status.COMMITTED)
    log.on_send_result("v1", ("T", 0), 0, is_ok=True)
    log.on_send_result("v2", ("T", 0), 1, is_ok=False)
    with pytest.raises(Violation, match="v2 is told SEND_OK"):
        log.on_send_result("v2", ("T", 0), 1, is_ok=True)


@pytest.mark.parametrize(
    ("status", "waited_ms"),
    [(Status.FLUSH_DISK_TIMEOUT, 50), (Status.FLUSH_SLAVE_TIMEOUT, 30)],
)
def test_a_timeout_takes_its_time(status: Status, waited_ms: int) -> None:
    log = book(slaves=True, disk=True)
    (entry, *_) = filled(log)
    answer(log, entry, status, waited_ms=waited_ms)
    with pytest.raises(Violation, match=f"after {waited_ms - 2} ms"):
        answer(log, entry, status, waited_ms=waited_ms - 2)
    with pytest.raises(Violation):
        answer(book(), entry, status, waited_ms=waited_ms)
    with pytest.raises(Violation, match="no slave is waited for"):
        answer(book(), entry, Status.SLAVE_NOT_AVAILABLE)


def test_what_is_read_and_told_stands_at_its_place() -> None:
    log = book()
    filled(log)
    log.on_read(("T", 0), 1, "v2")
    log.on_pulled(("T", 0), 1, [1, 2], 3)
    with pytest.raises(Violation, match="not its place"):
        log.on_read(("T", 0), 0, "v2")
    with pytest.raises(Violation, match="no master had it"):
        log.on_send_result("v2", ("T", 0), 0, is_ok=False)
    for found, to in (([2], 3), ([1, 3], 3), ([1], 3)):
        with pytest.raises(Violation, match="a pull"):
            log.on_pulled(("T", 0), 1, found, to)
    with pytest.raises(Violation, match="nothing is wrong any more"):
        log.on_bad_status_when_calm("FLUSH_SLAVE_TIMEOUT")
    assert [one.value for one in log.queues()["T", 0]] == ["v1", "v2", "v3"]
