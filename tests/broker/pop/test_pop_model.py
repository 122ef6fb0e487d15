"""POP against a model, over random histories: nothing lost, nothing given twice while it is held.

The model knows of every message whether it is free, held until a time, done, or dead; the state
knows holdings and offsets only. After each step both agree, and a captured and restored state goes
on as the original.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.payload import (
    UNIT,
    Payload,
    Run,
    decode_payload,
    encode_command,
    encode_header,
    encode_table,
)
from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopOrderCommand,
    RequestModeCommand,
    ReviveCommand,
)
from broker.entry.topics import system_topics
from broker.state.pop_state import PopState
from broker.state.state import BrokerState, StateLimits
from broker.state.state_image import decode_image

KEY = ("G", "T", 0)
RETRY = ("G", "%RETRY%G_T", 0)
TRIES_MAX = 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send", "pop", "ack", "stale ack", "change", "revive", "wait", "reset", "restore"]
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)


@dataclass
class Message:
    """A message of the model, through all its tries."""

    number: int
    place: tuple[tuple[str, str, int], int]  # queue and offset of the present try
    tries: int = 0
    handle: int | None = None  # pop time while it is held
    visible_ms: int = 0
    end: str | None = None  # "done" or "dead"


@dataclass
class Model:
    """A leader that obeys the rules, and what consumers know."""

    state: PopState = field(default_factory=PopState)
    offsets: dict = field(default_factory=dict)
    ends: dict = field(default_factory=lambda: {KEY: 0, RETRY: 0})
    messages: list[Message] = field(default_factory=list)
    old_handles: list = field(default_factory=list)
    now_ms: int = 1_000
    given: int = 0
    resets: int = 0

    def step(self, kind: str, number: int) -> None:
        self.now_ms += 1
        {
            "send": self.send,
            "pop": self.pop,
            "ack": self.ack,
            "stale ack": self.stale_ack,
            "change": self.change,
            "revive": self.revive,
            "wait": self.wait,
            "reset": self.reset,
            "restore": self.restore,
        }[kind](number)
        held = {m.place: m for m in self.messages if m.handle is not None and m.end is None}
        assert len(self.state) == len(held)
        for (key, offset), message in held.items():
            assert self.state.holding(key, offset) == (message.handle, message.visible_ms)

    def send(self, number: int) -> None:
        for _ in range(number + 1):
            self.messages.append(Message(len(self.messages), (KEY, self.ends[KEY])))
            self.ends[KEY] += 1

    def at(self, key, offset) -> Message:
        (message,) = [m for m in self.messages if m.place == (key, offset)]
        return message

    def pop(self, number: int) -> None:
        for key in (KEY, RETRY):
            start = self.offsets.get(key, 0)
            offsets = list(range(start, min(start + number + 1, self.ends[key])))
            for offset in offsets:
                message = self.at(key, offset)
                assert message.handle is None, "held by another"
                assert message.end is None
                message.handle, message.visible_ms = self.now_ms, self.now_ms + 50
                self.given += 1
            expected = self.offsets.get(key, -1)
            ahead = PopCommand(*key, expected, start + len(offsets), self.now_ms, 50, offsets)
            self.state.apply(ahead, self.offsets)
            assert self.offsets[key] == start + len(offsets)
            void = PopCommand(*key, expected - 1, self.ends[key], self.now_ms + 1, 50, offsets)
            self.state.apply(void, self.offsets)
            assert self.offsets[key] == start + len(offsets), "a pop that lost the race"

    def held(self, number: int) -> Message | None:
        held = [m for m in self.messages if m.handle is not None and m.end is None]
        return held[number % len(held)] if held else None

    def ack(self, number: int) -> None:
        message = self.held(number)
        if message is not None:
            key, offset = message.place
            self.state.apply(AckCommand(*key, [[offset, message.handle]]), self.offsets)
            message.end = "done"
            self.old_handles.append((message.place, message.handle))

    def stale_ack(self, number: int) -> None:
        if self.old_handles:
            (key, offset), pop_ms = self.old_handles[number % len(self.old_handles)]
            self.state.apply(AckCommand(*key, [[offset, pop_ms]]), self.offsets)

    def change(self, number: int) -> None:
        message = self.held(number)
        if message is not None:
            (key, offset), before = message.place, message.handle
            message.handle, message.visible_ms = self.now_ms, self.now_ms + 10 * number
            self.old_handles.append((message.place, before))
            after = (self.now_ms, message.visible_ms, False)
            self.state.apply(ChangeInvisibleCommand(*key, offset, before, *after), self.offsets)
            self.state.apply(
                ChangeInvisibleCommand(*key, offset, before, 1, 1, False), self.offsets
            )

    def revive(self, number: int) -> None:
        due = self.state.due(self.now_ms, number + 1)
        over = sorted(m.visible_ms for m in self.messages if m.handle and m.end is None)
        over = [at for at in over if at <= self.now_ms][: number + 1]
        assert [row.visible_ms for row in due] == over, "all that are over, the oldest first"
        assert self.state.due(self.now_ms, number + 1) == due, "until they are revived"
        self.state.apply(
            ReviveCommand([[*row.key, row.offset, row.pop_ms] for row in due]), self.offsets
        )
        for row in due:
            message = self.at(row.key, row.offset)
            self.old_handles.append((message.place, message.handle))
            message.tries += 1
            message.handle = None
            if message.tries > TRIES_MAX:
                message.end = "dead"
            else:
                message.place = (RETRY, self.ends[RETRY])
                self.ends[RETRY] += 1

    def wait(self, number: int) -> None:
        self.now_ms += 20 * number

    def reset(self, number: int) -> None:
        """The group reads the queue anew from an offset: what it holds there counts for nothing."""
        begin = min(number, self.ends[KEY])
        self.state.drop_queue(KEY)
        self.offsets[KEY] = begin
        for message in [m for m in self.messages if m.place[0] == KEY]:
            if message.handle is not None:
                self.old_handles.append((message.place, message.handle))
            if message.place[1] >= begin:
                self.messages.remove(message)
            elif message.end is None:
                message.handle, message.end = None, "passed over"
        fresh = [(KEY, offset) for offset in range(begin, self.ends[KEY])]
        self.messages += [Message(self.resets, place) for place in fresh]
        self.resets += 1

    def restore(self, number: int) -> None:
        twin = PopState()
        twin.restore(list(self.state.capture()))
        assert twin == self.state
        self.state = twin


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_nothing_is_lost_and_nothing_given_twice_while_it_is_held(steps):
    model = Model()
    for kind, number in steps:
        model.step(kind, number)
    for _ in range(TRIES_MAX + 2):  # then everybody takes all, and nobody acknowledges
        while any(model.offsets.get(key, 0) < model.ends[key] for key in (KEY, RETRY)):
            model.step("pop", 5)
        model.step("wait", 50)
        while model.state.due(model.now_ms, 1):
            model.step("revive", 5)
    assert all(message.end is not None for message in model.messages)
    assert len(model.state) == 0
    assert model.given <= sum(model.ends.values()) * (model.resets + 1)


def test_a_reset_takes_no_longer_where_others_hold_much():
    """It is applied on the loop of every replica."""
    state, offsets = PopState(), {}
    state.apply(PopCommand("OTHER", "U", 0, -1, 100, 1_000, 50, list(range(100))), offsets)
    state.apply(PopCommand(*KEY, -1, 2, 1_000, 50, [0, 1]), offsets)
    heap, held = state._heap, state._held
    state.drop_queue(KEY)
    assert (len(state), state.held(KEY)) == (100, 0)
    assert state._heap is heap, "nothing is made anew of what others hold"
    assert state._held is held


def test_what_is_popped_again_in_the_millisecond_of_a_reset_is_due_once():
    state, offsets = PopState(), {}
    for _ in range(2):
        state.apply(PopCommand(*KEY, offsets.get(KEY, -1), 1, 1_000, 50, [0]), offsets)
        row = (KEY, 0, 1_000)
        assert [(due.key, due.offset, due.pop_ms) for due in state.due(2_000, 10)] == [row]
        state.drop_queue(KEY)
        offsets[KEY] = 0
    assert not state.due(2_000, 10)


ORDER_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pop", "ack", "older handle", "change", "wait", "move ahead"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(ORDER_STEPS)
def test_in_order_nothing_is_passed_over(steps):
    state, offsets, now_ms = PopState(), {}, 1_000
    done: set[int] = set()
    until: dict[int, int] = {}  # of the present set: when each is visible again
    counts: dict[int, int] = {}
    pop_ms, moved = 0, 0
    older: list[tuple[int, int]] = []  # handles of earlier pops: offset and pop time
    for kind, number in steps:
        now_ms += 1
        held = state.orders.get(KEY)
        start = offsets.get(KEY, 0)
        assert all(offset in done for offset in range(moved, start)), "the group's offset"
        assert start >= moved, "what was skipped comes again"
        if kind == "pop":
            blocked = any(at > now_ms for offset, at in until.items() if offset not in done)
            assert blocked == (held is not None and held.blocked_until_ms("", now_ms) is not None)
            if blocked:
                continue
            popped = list(range(start, start + number + 1))
            for offset in popped:
                counts[offset] = counts.get(offset, -1) + 1 if offset in until else 0
            rows = (start, now_ms, 50, "", popped)
            state.apply(PopOrderCommand(*KEY, offsets.get(KEY, -1), *rows), offsets)
            older += [(offset, pop_ms) for offset in until]
            until, pop_ms = dict.fromkeys(popped, now_ms + 50), now_ms
            done -= set(popped)
            held = state.orders.get(KEY)
            known = dict(held.counts)
            assert {offset: known.get(offset, 0) for offset in popped} == {
                offset: counts[offset] for offset in popped
            }
        elif kind == "ack" and until:
            offset = sorted(until)[number % len(until)]
            state.apply(AckOrderCommand(*KEY, offset, pop_ms), offsets)
            done.add(offset)
            state.apply(AckOrderCommand(*KEY, offset, pop_ms - 1), offsets)
            if set(until) <= done:
                assert state.orders.get(KEY) is None
                assert offsets[KEY] == max(max(until) + 1, moved)
                older += [(offset, pop_ms) for offset in until]
                until = {}
        elif kind == "older handle" and older:
            offset, old_ms = older[-1 - number % len(older)]
            before = list(state.capture()), dict(offsets)
            state.apply(AckOrderCommand(*KEY, offset, old_ms), offsets)
            change = (offset, old_ms, old_ms, now_ms + 1_000, True)
            state.apply(ChangeInvisibleCommand(*KEY, *change), offsets)
            assert (list(state.capture()), offsets) == before, "it is somebody else's by now"
        elif kind == "change" and until:
            offset = sorted(until)[number % len(until)]
            until[offset] = now_ms + 10 * number
            change = (offset, pop_ms, pop_ms, until[offset], True)
            state.apply(ChangeInvisibleCommand(*KEY, *change), offsets)
        elif kind == "wait":
            now_ms += 20 * number
        elif kind == "move ahead":  # by an administrator's tool
            moved = offsets[KEY] = start + number
        twin = PopState()
        twin.restore(list(state.capture()))
        assert twin == state


def test_what_the_broker_keeps_of_pops_is_in_payloads_and_snapshots():
    limits = StateLimits()
    state = BrokerState(limits, system_topics("C", "g"))
    commands = [
        PopCommand("G", "T", 0, -1, 2, 1_000, 50, [0, 1]),
        AckCommand("G", "T", 0, [[0, 1_000]]),
        ChangeInvisibleCommand("G", "T", 0, 1, 1_000, 1_001, 2_000, False),
        PopOrderCommand("G", "U", 0, -1, 0, 1_000, 50, "x", [0, 1]),
        AckOrderCommand("G", "U", 0, 0, 1_000),
        RequestModeCommand("T", "G", "POP", 2),
        ReviveCommand([["G", "T", 0, 7, 1_000]]),
    ]
    run = Run("T", 0, 0, UNIT.pack(0, 10, 0) + UNIT.pack(10, 10, 0), None)
    table = encode_table(1_000, [run], list(map(encode_command, commands)))
    payload = decode_payload(encode_header(len(table)) + table)
    assert payload == Payload(1_000, [run], commands)
    state.apply(payload, 0)
    assert state.pop.holding(KEY, 1) == (1_001, 2_000)
    assert (state.consumer_offsets[KEY], state.consumer_offsets["G", "U", 0]) == (2, 1)
    twin = BrokerState(limits, {})
    twin.restore(decode_image(state.capture().encode()))
    assert twin.pop == state.pop
    assert twin.pop.modes == state.pop.modes
    state.pop.drop_topics({"T"})
    assert (len(state.pop), state.pop.modes) == (0, {})
    state.pop.drop_group("G")
    assert len(state.pop.orders) == 0
