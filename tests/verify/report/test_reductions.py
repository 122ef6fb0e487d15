"""What the report computes: percentiles, pauses and their parts, spans of roles."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.verify.report.synthetic_run import MS, OPS, RAFT, S, Trace
from verify.report.activity import OPS_COLUMNS, measure_activity
from verify.report.faults import Fault
from verify.report.replicas import RAFT_COLUMNS, RoleChange, read_replicas
from verify.report.unavailability import Pause, pause_of
from verify.report.wording import clipped, duration, number


def op(
    f: str, outcome: str, begin: int, end: int | None, group: str | None = "g"
) -> dict[str, object]:
    return {
        "f": f,
        "type": outcome,
        "t_invoke": begin,
        "t_complete": end,
        "broker_group": group,
    }


def batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    table = pa.Table.from_pylist(rows, schema=OPS).select(OPS_COLUMNS.names)
    return table.combine_chunks().to_batches()[0]


class TestActivity:
    def test_each_outcome_counts_where_it_ended(self) -> None:
        rows = [
            op("send", "ok", 0, 1 * S),
            op("half", "ok", 0, 1 * S + 5),
            op("poll", "ok", 0, 2 * S),
            op("send", "fail", 0, 2 * S),
            op("send", "info", 1 * S, None, None),
            op("deliver", "fail", 1 * S, 99 * S),
        ]
        activity = measure_activity([batch(rows), batch(rows)], end_ns=3 * S)
        assert activity.writes.tolist() == [0, 4, 0]
        assert activity.reads.tolist() == [0, 0, 2]
        assert activity.refused.tolist() == [0, 0, 4]
        assert activity.unknown.tolist() == [0, 2, 0]
        assert activity.count("send", "ok") == 2
        assert activity.operations == 12

    def test_percentiles_are_right_to_two_percent(self) -> None:
        spent = np.random.default_rng(1).lognormal(1.5, 1.0, 5000)
        rows = [op("send", "ok", 0, int(ms * MS)) for ms in spent]
        activity = measure_activity([batch(rows[:100]), batch(rows[100:])], end_ns=1)
        for share in (0.5, 0.99):
            (found,) = activity.percentile_ms(share)
            assert found == pytest.approx(float(np.quantile(spent, share)), rel=0.02)
            assert activity.overall_percentile_ms(share) == found

    def test_a_long_run_gets_wider_buckets(self) -> None:
        activity = measure_activity([batch([op("send", "ok", 0, 5 * S)])], end_ns=36_000 * S)
        assert activity.bucket_s == 10
        assert len(activity.writes) == 3600
        assert activity.rate(activity.writes)[0] == 0.1

    def test_nothing_at_all(self) -> None:
        activity = measure_activity([], end_ns=2 * S)
        assert activity.percentile_ms(0.5) == [None, None]
        assert activity.overall_percentile_ms(0.5) is None


def fault(*, targets: tuple[str, ...] = ("g/n0",)) -> Fault:
    return Fault(
        number=1,
        name="kill",
        targets=targets,
        params="",
        t_start=100 * MS,
        t_effect=110 * MS,
        t_heal=None,
        t_healed=500 * MS,
        effect="taken",
        evidence="",
    )


def cells(*ticks: int) -> npt.NDArray[np.bool_]:
    array = np.zeros(1000, dtype=np.bool_)
    array[list(ticks)] = True
    return array


def change(t_ms: int, role: str, group: str = "g") -> RoleChange:
    return RoleChange(
        group=group, node="n1", incarnation=1, seq=t_ms, t=t_ms * MS, role=role, term=2
    )


def pause(
    acks: dict[str, npt.NDArray[np.bool_]],
    *changes: RoleChange,
    window: tuple[int, int] = (100, 500),
    targets: tuple[str, ...] = ("g/n0",),
) -> Pause | None:
    return pause_of(
        fault(targets=targets),
        acks=acks,
        tick_ns=MS,
        changes=changes,
        window=(window[0] * MS, window[1] * MS),
    )


class TestPause:
    def test_the_longest_that_overlaps_the_window(self) -> None:
        acks = {"g": cells(*range(50), 90, 150, 160, 400, 450, 700, 999)}
        assert pause(acks) == Pause(group="g", begin=450 * MS, end=700 * MS)
        assert pause(acks, window=(100, 440)) == Pause(group="g", begin=160 * MS, end=400 * MS)

    def test_what_lies_outside_does_not_count(self) -> None:
        acks = {"g": cells(0, 99, 120, 300, 490, 510, 990)}
        assert pause(acks) == Pause(group="g", begin=300 * MS, end=490 * MS)

    def test_parts_sum_up(self) -> None:
        acks = {"g": cells(95, 105, 400, 410, 500)}
        split = pause(
            acks,
            change(50, "leader"),
            change(200, "candidate"),
            change(230, "candidate"),
            change(250, "leader"),
            change(210, "leader", group="other"),
        )
        assert split is not None
        assert (split.detect, split.elect, split.recover) == (95 * MS, 50 * MS, 150 * MS)
        assert split.length == 295 * MS

    def test_no_election_no_parts(self) -> None:
        found = pause({"g": cells(95, 400, 600)}, change(450, "leader"))
        assert found is not None
        assert found.detect is None

    def test_the_worst_of_the_groups_named(self) -> None:
        acks = {"g": cells(99, 200, 400, 600), "h": cells(99, 150, 480, 600)}
        worst = pause(acks, targets=("g/n0->g/n1", "h/n0"))
        only = pause(acks, targets=("g/n0",))
        assert worst is not None
        assert only is not None
        assert (worst.group, only.group) == ("h", "g")

    @pytest.mark.parametrize("target", ["g-10-n0", "g-10/n0", "g-10-n0->g-10-n1", "a->g-10-n0"])
    def test_a_group_whose_name_begins_alike_is_not_named(self, target: str) -> None:
        acks = {"g-1": cells(0, 999), "g-10": cells(*range(0, 1000, 100))}
        found = pause(acks, targets=(target,))
        assert found is not None
        assert found.group == "g-10"

    def test_never_again(self) -> None:
        assert pause({"g": cells(90)}) == Pause(group="g", begin=90 * MS, end=None)
        assert pause({"g": cells(90, 120)}) == Pause(group="g", begin=120 * MS, end=None)

    def test_a_load_that_ends_in_the_window_is_no_pause(self) -> None:
        acks = {"g": cells(90, 300, *range(310, 499))}
        assert pause(acks) == Pause(group="g", begin=90 * MS, end=300 * MS)

    def test_none_before(self) -> None:
        assert pause({"g": cells(300, 400)}) is None
        assert pause({}) is None


def test_a_killed_leader_leads_until_its_last_event() -> None:
    trace = Trace()
    trace.tell("n0", 0, "start", 0)
    trace.tell("n0", 1 * S, "role", 1, "candidate")
    trace.tell("n0", 2 * S, "role", 1, "leader")
    trace.tell("n0", 5 * S, "commit", 1)
    trace.tell("n0", 9 * S, "start", 1)
    trace.tell("n0", 10 * S, "append", 3)
    table = pa.Table.from_pylist(trace.rows[::-1], schema=RAFT).select(RAFT_COLUMNS.names)
    replicas = read_replicas(table.to_batches(max_chunksize=2))
    assert [(span.role, span.begin // S, span.end // S) for span in replicas.spans()] == [
        ("follower", 0, 1),
        ("candidate", 1, 2),
        ("leader", 2, 5),
        ("follower", 9, 10),
    ]
    assert replicas.leaderships == 1
    assert replicas.terms["broker-a", "n0"] == {0: 0, 1: 1, 2: 1, 5: 1, 9: 1, 10: 3}


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (None, "–"),
        (5 * MS, "5 ms"),
        (999 * MS, "999 ms"),
        (1500 * MS, "1.50 s"),
        (75 * S, "75.0 s"),
    ],
)
def test_durations(ns: int | None, words: str) -> None:
    assert duration(ns) == words


def test_numbers_and_clipping() -> None:
    assert number(1234567) == "1\u202f234\u202f567"
    assert number(value=True) == "True"
    assert clipped("abcdef", 4) == "abc…"
