"""The dedupe window against a dumb model: a list of everything that was ever stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.state.dedupe import DedupeWindow, Verdict

WINDOW_MS = 1_000


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.lists(st.integers(0, 60), min_size=1, max_size=8)),
        max_size=40,
    )
)
def test_no_key_is_ever_called_new_twice(steps):
    window = DedupeWindow(window_ms=WINDOW_MS, keys_max=40, evicted_keys_max=10_000)
    stored: dict[str, tuple[int, int]] = {}
    now_ms, position = 1, 0
    for wait_ms, numbers in steps:
        now_ms += wait_ms
        fresh: list[str] = []
        for number in dict.fromkeys(numbers):
            key = f"key-{number}"
            verdict = window.judge(key, born_ms=now_ms, now_ms=now_ms)
            if verdict is Verdict.NEW:
                assert key not in stored
                fresh.append(key)
            elif verdict is Verdict.STORED:
                assert window.find(key) == stored[key][0]
            else:
                assert key in stored
        positions = range(position, position + len(fresh))
        stored.update((key, (at, now_ms)) for key, at in zip(fresh, positions, strict=True))
        position += len(fresh)
        if fresh:
            window.add(fresh, positions, now_ms)


@given(st.integers(1, 30))
def test_what_is_within_time_and_count_is_found(count):
    window = DedupeWindow(window_ms=WINDOW_MS, keys_max=1_000, evicted_keys_max=1_000)
    for at in range(count):
        window.add([f"k{at}"], [at], 10_000 + at)
    now_ms = 10_000 + count
    for at in range(count):
        assert window.judge(f"k{at}", born_ms=now_ms, now_ms=now_ms) is Verdict.STORED
        assert window.find(f"k{at}") == at


def test_a_clock_that_is_slower_by_less_than_the_window_is_no_reason_to_refuse():
    """However fast keys come: many times what is remembered otherwise."""
    window = DedupeWindow(window_ms=WINDOW_MS, keys_max=100, evicted_keys_max=200)
    now_ms = 1_000_000
    for at in range(10_000):
        now_ms += 1 if at % 3 else 0
        window.add([f"k{at}"], [at], now_ms)
        born_ms = now_ms - WINDOW_MS + 1
        assert window.judge(f"new {at}", born_ms=born_ms, now_ms=now_ms) is Verdict.NEW
        if at >= 1_500:  # of the window, but no place is known any more
            assert window.judge(f"k{at - 1_500}", born_ms=born_ms, now_ms=now_ms) is Verdict.EXPIRED
    assert window.judge("k1", born_ms=1_000_001, now_ms=now_ms) is Verdict.EXPIRED, "by its birth"


def test_the_window_is_bounded_by_count():
    window = DedupeWindow(window_ms=10**9, keys_max=100, evicted_keys_max=200)
    for at in range(10_000):
        window.add([f"k{at}"], [at], 1_000 + at)
    assert len(window) <= 125
    assert window.judge("k9850", born_ms=19_999, now_ms=11_000) is Verdict.EXPIRED
    assert window.judge("k1", born_ms=1_001, now_ms=11_000) is Verdict.EXPIRED, "by its birth"
    assert window.judge("unseen", born_ms=19_999, now_ms=11_000) is Verdict.NEW


@given(
    st.lists(st.integers(0, 400), max_size=120, unique=True),
    st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=8, unique=True), max_size=20),
)
def test_a_batch_is_judged_as_its_messages_are(stored, batches):
    window = DedupeWindow(window_ms=1_000, keys_max=40, evicted_keys_max=40)
    for at, number in enumerate(stored):
        window.add([f"k{number}"], [number], 1_000 + 20 * at)
    now_ms = 1_000 + 20 * len(stored)
    for batch in batches:
        keys = [f"k{number}" for number in batch]
        judged = [window.judge(key, born_ms=now_ms, now_ms=now_ms) for key in keys]
        wanted = all(verdict is Verdict.NEW for verdict in judged)
        assert window.knows_none(keys, born_ms=now_ms) == wanted


@given(st.randoms(use_true_random=False), st.integers(0, 3_000))
def test_no_key_is_called_new_again_whoever_is_ahead(rng, ahead_ms_max):
    """The memory ends by time; producers are up to 3 s ahead, or 2 behind."""
    window = DedupeWindow(window_ms=WINDOW_MS, keys_max=8, evicted_keys_max=8)
    births: dict[str, int] = {}
    now_ms = 100_000
    for at in range(rng.randint(0, 120)):
        now_ms += rng.randint(50, 300)
        key, born_ms = f"k{at}", now_ms + rng.randint(-2_000, ahead_ms_max)
        if window.judge(key, born_ms=born_ms, now_ms=now_ms) is Verdict.NEW:
            window.add([key], [at], now_ms, born_ms)
            births[key] = born_ms
        for earlier in list(births)[-60:]:
            verdict = window.judge(earlier, born_ms=births[earlier], now_ms=now_ms)
            assert verdict is not Verdict.NEW


def test_a_fast_clock_has_nothing_new_refused_however_fast_keys_come():
    window = DedupeWindow(window_ms=600_000, keys_max=100, evicted_keys_max=200)
    for at in range(10_000):
        now_ms = 1_000_000 + at
        window.add([f"k{at}"], [at], now_ms, now_ms + 65_535)
        assert window.judge(f"new {at}", born_ms=now_ms, now_ms=now_ms) is Verdict.NEW


def test_a_producer_an_hour_ahead_has_nobody_else_refused():
    window = DedupeWindow(window_ms=600_000, keys_max=100, evicted_keys_max=200)
    now_ms = 10_000_000
    for at in range(20_000):
        now_ms += 600
        window.add([f"k{at}"], [at], now_ms, now_ms + 65_535)
        assert window.judge(f"new {at}", born_ms=now_ms - 400_000, now_ms=now_ms) is Verdict.NEW
