"""A captured state, put back, is the state: equal bytes now, equal bytes and judgements ever after.

The histories are random payloads of every kind, in small windows, so that generations close, leave
and are forgotten within a few dozen steps.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.payload import (
    UNIT,
    CheckCommand,
    ClearResetCommand,
    Command,
    DecideCommand,
    DeleteGroupCommand,
    DeleteTopicCommand,
    DeleteUserCommand,
    DeliverCommand,
    DiscardCommand,
    GrantCommand,
    GroupCommand,
    LockCommand,
    OffsetCommand,
    Payload,
    ResetCommand,
    Run,
    UnlockCommand,
    UserCommand,
)
from broker.entry.pop_commands import AckOrderCommand, PopOrderCommand
from broker.entry.topics import HALF_TOPIC, SCHEDULE_TOPIC, Topic, system_topics
from broker.state.dedupe import DedupeWindow, Verdict
from broker.state.state import BrokerState, StateLimits
from broker.state.state_image import CHUNK_SIZE_MAX, decode_image
from tests.work import counted

LIMITS = StateLimits(
    dedupe_window_ms=5_000, dedupe_keys_max=24, dedupe_evicted_keys_max=24, decided_max=3
)
TOPICS = ("A", "B", HALF_TOPIC, SCHEDULE_TOPIC)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3_000),  # milliseconds since the step before
        st.lists(
            st.tuples(
                st.sampled_from(TOPICS), st.integers(1, 4), st.lists(st.integers(0, 80), max_size=4)
            ),
            max_size=3,
        ),
        st.lists(
            st.sampled_from(
                [
                    *("offset", "topic", "group", "commit", "rollback", "discard", "check"),
                    *("deliver", "delete topic", "delete group", "reset", "clear reset"),
                    *("lock", "unlock", "user", "delete user", "grant"),
                ]
            ),
            max_size=3,
        ),
    ),
    max_size=40,
)


def fresh(limits: StateLimits = LIMITS) -> BrokerState:
    return BrokerState(limits, system_topics("C", "g"))


def encoded(state: BrokerState) -> bytes:
    return b"".join(state.capture().encode())


def restored(data: bytes, limits: StateLimits = LIMITS) -> BrokerState:
    state = fresh(limits)
    state.restore(decode_image([data]))
    return state


class Author:
    """Writes payloads that a leader could have written for the state it follows."""

    def __init__(self) -> None:
        self.position = 0
        self.now_ms = 1_000_000

    def payload(self, state: BrokerState, step) -> tuple[Payload, int]:
        wait_ms, wanted_runs, wanted_commands = step
        self.now_ms += wait_ms
        start = self.position
        ends = dict(state.next_offsets)
        runs: list[Run] = []
        for topic, count, numbers in wanted_runs:
            if any(run.topic == topic for run in runs):
                continue
            units = b"".join(UNIT.pack(start + at, 100, at) for at in range(count))
            keys = [f"key-{number}" for number in numbers[:count]] + [None] * (count - len(numbers))
            first = ends.get((topic, 0), 0)
            runs.append(Run(topic, 0, first, units, keys if any(keys) else None))
            self.position += 100 * count
        self.position += 44
        commands = [
            command
            for number, kind in enumerate(wanted_commands)
            if (command := self._command(state, kind, number)) is not None
        ]
        return Payload(self.now_ms, runs, commands), start

    def _command(self, state: BrokerState, kind: str, number: int) -> Command | None:
        undecided = state.halves.undecided()
        half = undecided[number % len(undecided)] if number < len(undecided) else None
        delivered = state.delay_offsets.get(0, 0)
        match kind:
            case "offset":
                return OffsetCommand(f"g{self.now_ms % 3}", "A", 0, self.now_ms)
            case "topic":
                return Topic(name=f"T{self.now_ms % 5}", attributes={"n": "1"}).command()
            case "group":
                return GroupCommand(f"g{self.now_ms % 3}", {"retryMaxTimes": number, "on": True})
            case "delete topic":
                return DeleteTopicCommand("A" if self.now_ms % 2 else "B")
            case "delete group":
                return DeleteGroupCommand(f"g{self.now_ms % 3}", clean_offset=number % 2 == 0)
            case "reset":
                rows = [[queue, self.now_ms % 7] for queue in range(number + 1)]
                return ResetCommand(f"g{self.now_ms % 3}", "A", rows)
            case "clear reset":
                return ClearResetCommand(f"g{self.now_ms % 3}", "A", number, self.now_ms % 7)
            case "lock" | "unlock":
                kind_of = LockCommand if kind == "lock" else UnlockCommand
                queues = [["A" if number else "B", queue] for queue in range(number + 1)]
                claim = self.now_ms % 4
                return kind_of(f"g{self.now_ms % 3}", f"c{self.now_ms % 2}", queues, claim)
            case "user":
                kind = "Super" if self.now_ms % 2 else "Normal"
                return UserCommand(f"u{self.now_ms % 3}", f"{self.now_ms}", kind, "enable")
            case "delete user":
                return DeleteUserCommand(f"u{self.now_ms % 3}")
            case "grant":
                rows = [["Custom", f"Topic:{n}", ["Pub"], ["::1"], "Deny"] for n in range(number)]
                return GrantCommand(f"u{self.now_ms % 3}", rows)
            case "deliver" if number == 0:
                return DeliverCommand(0, delivered, delivered + 1)
            case "commit" | "rollback" if half is not None:
                return DecideCommand(half.queue_offset, half.position, kind, False)
            case "discard" if half is not None:
                return DiscardCommand(half.queue_offset)
            case "check" if half is not None:
                return CheckCommand(half.queue_offset)
            case _:
                return None


@settings(deadline=None, max_examples=150)
@given(STEPS, st.data())
def test_a_restored_state_goes_on_as_the_original(steps, data):
    cut = data.draw(st.integers(0, len(steps)))
    author, state = Author(), fresh()
    for step in steps[:cut]:
        state.apply(*author.payload(state, step))
    twin = restored(encoded(state))
    assert encoded(twin) == encoded(state)
    for step in steps[cut:]:
        payload, position = author.payload(state, step)
        state.apply(payload, position)
        twin.apply(payload, position)
        for window, other in ((state.messages, twin.messages), (state.half_keys, twin.half_keys)):
            assert len(window) == len(other)
            for number in range(82):
                key, born_ms = f"key-{number}", author.now_ms - 20 * number
                assert window.find(key) == other.find(key)
                asked = {"born_ms": born_ms, "now_ms": author.now_ms + 1_000}
                assert window.judge(key, **asked) is other.judge(key, **asked)
    assert encoded(twin) == encoded(state)
    assert vars_of(twin) == vars_of(state)


def vars_of(state: BrokerState) -> dict[str, object]:
    """All that is compared by value."""
    own = dict(vars(state))
    for name in ("messages", "half_keys", "halves", "time_marks"):
        own[name] = own[name].capture()
    return own  # parts compare by their rows


@settings(deadline=None, max_examples=60)
@given(STEPS, st.lists(st.integers(1, 400), max_size=8))
def test_borders_of_chunks_mean_nothing(steps, cuts):
    author, state = Author(), fresh()
    for step in steps:
        state.apply(*author.payload(state, step))
    data = encoded(state)
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(data[at : at + cut])
        at += cut
    twin = fresh()
    twin.restore(decode_image([*chunks, data[at:]]))
    assert encoded(twin) == data


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_what_is_cut_short_or_goes_on_is_no_state(data):
    whole = encoded(fresh())
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match="state"):
        decode_image([whole[:cut]])
    with pytest.raises(ValueError, match="behind its end"):
        decode_image([whole, b"\xc0"])


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 2_000), st.integers(1, 255))
def test_arbitrary_bytes_are_a_value_error_at_worst(noise, place, flip):
    """Of foreign bytes, and of a state with one byte changed."""
    whole = bytearray(encoded(fresh()))
    whole[place % len(whole)] ^= flip
    for data in (noise, bytes(whole)):
        try:
            fresh().restore(decode_image([data]))
        except ValueError:
            continue
        assert data != noise


def test_large_tables_come_in_small_chunks():
    state = fresh()
    for number in range(300):
        config = {"attributes": {"text": "x" * 60_000}, "number": number}
        state.groups[f"group-{number}"] = config
    for number in range(60_000):
        state.consumer_offsets[f"group-{number % 7}", "A" * 127, number] = number
    chunks = list(state.capture().encode())
    assert len(chunks) > 10
    assert max(map(len, chunks)) <= CHUNK_SIZE_MAX
    twin = fresh()
    twin.restore(decode_image(chunks))
    assert twin.groups == state.groups
    assert twin.consumer_offsets == state.consumer_offsets


def test_a_capture_is_not_touched_by_what_comes_after():
    author, state = Author(), fresh()
    for number in range(30):
        state.apply(*author.payload(state, (400, [(HALF_TOPIC, 2, [number])], ["check"])))
    image = state.capture()
    before = b"".join(image.encode())
    for number in range(30):
        step = (400, [(HALF_TOPIC, 1, [number + 30]), ("A", 1, [number])], ["commit", "check"])
        state.apply(*author.payload(state, step))
    assert b"".join(image.encode()) == before
    assert encoded(state) != before


def with_many_rows(count: int) -> BrokerState:
    """A state with so many rows of each part that groups, topics and their queues have."""
    state, now_ms = fresh(), 1_000_000
    for number in range(count):
        queue = ("G", f"T{number}", 0)
        state.queue_owners.lock("G", "c", [queue[1:]])
        popped = PopOrderCommand(*queue, -1, 0, now_ms, 30_000, "attempt", [0, 1, 2])
        state.pop.apply(popped, state.consumer_offsets)
        state.pop.apply(AckOrderCommand(*queue, 1, now_ms), state.consumer_offsets)
        state.resets.set(*queue, 1)
        state.resumed.add(count - number)
        state.deletions.note(f"T{number}", number)
        state.next_offsets[queue[1:]] = number
    state.floors.topics_deleted({f"T{number}" for number in range(count)}, state.next_offsets)
    return state


def test_the_loop_makes_no_rows_of_a_capture():
    """All replicas capture at the same entry: while they did, nobody led or voted."""
    state = with_many_rows(500)
    with counted() as work:
        image = state.capture()
    assert work.lines < 250
    before = encoded(state)
    told = decode_image([before]).parts
    assert told.keys() == {"resets", "floors", "deletions", "owners", "pop", "resumed"}
    for number in range(500):  # what comes after changes nothing in it
        queue = ("G", f"T{number}", 0)
        state.queue_owners.unlock("G", "c", [queue[1:]])
        state.pop.apply(AckOrderCommand(*queue, 2, 1_000_000), state.consumer_offsets)
        state.resets.clear(*queue, 1)
        state.resumed.add(1_000 + number)
        state.deletions.note(f"T{number}", 1_000)
        state.next_offsets[queue[1:]] = 1_000
    state.floors.topics_deleted({f"T{number}" for number in range(500)}, state.next_offsets)
    assert {name: list(rows) for name, rows in image.parts.items() if name in told} == told
    assert encoded(state) != before


def test_a_capture_at_the_bounds_shares_what_is_closed():
    """No time is asserted, but what takes it: half a million keys are shared, not copied."""
    window = DedupeWindow(window_ms=600_000, keys_max=500_000, evicted_keys_max=1_000_000)
    for first in range(0, 1_600_000, 1_000):
        window.add([f"{key:032X}" for key in range(first, first + 1_000)], range(1_000), 1_000)
    image = window.capture()
    assert image.newest is not None
    assert len(image.newest.hashes) <= 16_384
    shared = [generation for epoch in image.epochs for generation in epoch]
    assert len(shared) > 40
    assert all(a is b for a, b in zip(shared, _closed(window.capture()), strict=True))
    assert window.judge(f"{1_599_999:032X}", born_ms=999, now_ms=1_000) is Verdict.STORED
    assert window.judge(f"{1_000_000:032X}", born_ms=9_999, now_ms=1_000) is Verdict.EXPIRED


def _closed(image):
    return [generation for epoch in image.epochs for generation in epoch]


def test_limits_may_change_between_capture_and_restore():
    author, state = Author(), fresh()
    for number in range(40):
        state.apply(*author.payload(state, (1, [("A", 2, [number, number + 40])], [])))
    wider = restored(encoded(state), replace(LIMITS, dedupe_keys_max=1_000, decided_max=100))
    narrower = restored(encoded(state), replace(LIMITS, dedupe_keys_max=4))
    for twin in (wider, narrower):
        twin.apply(*author.payload(state, (1, [("A", 1, [999])], [])))
        asked = {"born_ms": author.now_ms, "now_ms": author.now_ms}
        assert twin.messages.judge("key-39", **asked) is not Verdict.NEW
    assert len(narrower.messages) <= 4
