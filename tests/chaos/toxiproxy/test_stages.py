"""Stages and links on a clock of their own: no socket, no loop, no waiting."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.toxiproxy.bench import Bench, toxic
from toxiproxy.toxic import Toxic
from toxiproxy.toxics import TOXIC_TYPES, Stage


def test_without_toxics_the_source_writes_straight_to_the_destination() -> None:
    bench = Bench(toxic("latency", toxicity=0.0))
    assert bench.route == bench.destination.write


def test_latency_is_exact() -> None:
    bench = Bench(toxic("latency", latency=100))
    bench.route(b"a")
    bench.timers.run_until(0.04)
    bench.route(b"b")
    bench.link.finish()
    bench.timers.run_until(1)
    assert bench.destination.arrivals == [(0.1, b"a"), (pytest.approx(0.14), b"b")]
    assert bench.destination.closed_at == pytest.approx(0.14)


def test_bandwidth_does_not_drift() -> None:
    bench = Bench(toxic("bandwidth", rate=100))
    bench.route(bytes(100_000))
    bench.timers.run_until(10)
    assert bench.destination.arrivals[-1][0] == pytest.approx(1.0)
    assert max(len(data) for _, data in bench.destination.arrivals) <= 10_000


def test_bandwidth_pauses_the_source_and_lets_it_go_on() -> None:
    bench = Bench(toxic("bandwidth", rate=100))
    bench.route(bytes(300_000))
    assert bench.source.paused
    bench.timers.run_until(2.9)
    assert not bench.source.paused


def test_a_black_hole_in_front_of_a_full_destination_reads_on() -> None:
    bench = Bench()
    bench.link.destination_full(True)
    assert bench.source.paused
    bench.link.add(toxic("timeout"))
    assert not bench.source.paused
    bench.route(b"lost")
    bench.link.remove("t")
    assert bench.destination.bytes == b""
    assert bench.destination.closed_at == 0


def test_timeout_restarts_at_each_chunk() -> None:
    bench = Bench(toxic("timeout", timeout=100))
    bench.timers.run_until(0.09)
    bench.route(b"x")
    bench.timers.run_until(0.18)
    assert bench.destination.closed_at is None
    bench.timers.run_until(1)
    assert bench.destination.closed_at == pytest.approx(0.19)


def test_reset_peer_resets_once_and_drops_all() -> None:
    bench = Bench(toxic("reset_peer", timeout=50), toxic("latency", name="l", latency=5))
    bench.route(b"x")
    bench.route(b"y")
    bench.link.finish()
    bench.timers.run_until(1)
    assert (bench.resets, bench.destination.bytes) == (1, b"")


def test_limit_data_survives_an_update() -> None:
    bench = Bench(toxic("limit_data", bytes=5))
    bench.route(b"123")
    bench.link.update(toxic("limit_data", bytes=7))
    bench.route(b"456789")
    assert bench.destination.bytes == b"1234567"
    assert bench.destination.closed_at == 0


def test_chunks_are_lost_by_their_share_and_in_bursts() -> None:
    def lost(correlation: float) -> list[bool]:
        bench = Bench(toxic("packet_loss", loss_rate=0.3, correlation=correlation), seed="5")
        for number in range(2000):
            bench.route(number.to_bytes(2))
        came = {data for _, data in bench.destination.arrivals}
        return [number.to_bytes(2) not in came for number in range(2000)]

    def changes(fates: list[bool]) -> int:
        return sum(one is not other for one, other in itertools.pairwise(fates))

    single, bursts = lost(0.0), lost(0.9)
    assert 500 < sum(single) < 700
    assert 350 < sum(bursts) < 850
    assert changes(bursts) < changes(single) / 4
    assert single == lost(0.0)


def test_slices_are_near_the_average_and_sum_up() -> None:
    bench = Bench(toxic("slicer", average_size=100, size_variation=20, delay=1000))
    bench.route(bytes(10_000))
    bench.timers.run_until(60)
    sizes = [len(data) for _, data in bench.destination.arrivals]
    assert sum(sizes) == 10_000
    assert max(sizes) <= 120
    times = [time for time, _ in bench.destination.arrivals]
    assert times == pytest.approx([place / 1000 for place in range(len(times))])


@pytest.mark.parametrize(("average", "variation"), [(0, 0), (-5, 3), (1, 0), (3, 8), (3, -2)])
def test_slicer_works_with_whatever_it_is_given(average: int, variation: int) -> None:
    bench = Bench(toxic("slicer", average_size=average, size_variation=variation))
    payload = random.Random(1).randbytes(256 * 1024)  # the largest read
    bench.route(payload)
    assert len(bench.destination.arrivals) <= 2000, "one chunk must not hold up the whole loop"
    bench.timers.run_until(60)
    assert bench.destination.bytes == payload
    assert max(len(data) for _, data in bench.destination.arrivals) <= 2 * max(1, average)


def test_closing_a_link_leaves_no_timer() -> None:
    bench = Bench(
        toxic("latency", name="a", latency=10),
        toxic("bandwidth", name="b", rate=1),
        toxic("slow_close", name="c", delay=10),
        toxic("timeout", name="d", timeout=100),
    )
    bench.route(b"x")
    bench.timers.run_until(0.011)
    bench.link.finish()
    bench.link.close()
    assert bench.timers.pending == 0
    bench.timers.run_until(10)
    assert bench.destination.closed_at is None


def test_one_seed_one_jitter() -> None:
    def times(seed: str) -> list[float]:
        bench = Bench(toxic("latency", latency=50, jitter=50), seed=seed)
        for _ in range(20):
            bench.route(b"x")
            bench.timers.run_until(bench.timers.time + 1)
        return [time for time, _ in bench.destination.arrivals]

    assert times("7") == times("7") != times("8")


def test_toxicity_is_the_share_of_links_hit() -> None:
    benches = [Bench(toxic("noop", toxicity=0.3), seed=str(seed)) for seed in range(400)]
    hit = [bench.route == bench.link.feed for bench in benches]
    assert 80 < sum(hit) < 160
    again = [Bench(toxic("noop", toxicity=0.3), seed=str(seed)) for seed in range(400)]
    assert hit == [bench.route == bench.link.feed for bench in again]


PASSING = ("latency", "bandwidth", "slicer", "slow_close", "noop")
CHANGE = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 5000)),
    st.tuples(st.just("wait"), st.integers(0, 3000)),
    st.tuples(st.just("add"), st.sampled_from(PASSING)),
    st.tuples(st.just("update"), st.integers(0, 500)),
    st.tuples(st.just("remove"), st.integers(0, 5)),
)


def passing_toxic(type_name: str, name: str, rng: random.Random) -> Toxic:
    ranges = {"rate": (1, 500), "average_size": (50, 500), "size_variation": (0, 40)}
    attributes = {
        field: rng.randint(*ranges.get(field, (0, 400))) for field in TOXIC_TYPES[type_name].fields
    }
    return toxic(type_name, name, rng.choice([0.5, 1.0]), **attributes)


@given(changes=st.lists(CHANGE, max_size=40), seed=st.integers(0, 1000))
def test_no_byte_is_lost_or_moved_whatever_changes(
    changes: list[tuple[str, int | str]], seed: int
) -> None:
    """Toxics that only delay may come, change and go: the stream stays the stream."""
    rng = random.Random(seed)
    bench = Bench(seed=str(seed))
    live: dict[str, str] = {}
    sent = b""
    for number, (what, value) in enumerate(changes):
        if what == "feed":
            data = rng.randbytes(int(value))
            sent += data
            bench.route(data)
        elif what == "wait":
            bench.timers.run_until(bench.timers.time + int(value) / 1000)
        elif what == "add":
            live[f"n{number}"] = str(value)
            bench.link.add(passing_toxic(str(value), f"n{number}", rng))
        elif live:
            name = sorted(live)[int(value) % len(live)]
            if what == "update":
                bench.link.update(passing_toxic(live[name], name, rng))
            else:
                del live[name]
                bench.link.remove(name)
    bench.link.finish()
    bench.timers.run_until(bench.timers.time + 3600)
    assert bench.destination.bytes == sent
    assert bench.destination.closed_at is not None
    assert not bench.source.paused
    assert bench.timers.pending == 0


def test_every_type_says_what_it_is() -> None:
    for name, stage in TOXIC_TYPES.items():
        assert issubclass(stage, Stage)
        assert stage.type_name == name
