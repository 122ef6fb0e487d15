"""The table of undecided halves against a model of dicts, and what it costs to walk it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.state.half_table import Half, HalfTable

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("decide"), st.integers(0, 40)),
        st.tuples(st.just("check"), st.integers(0, 40)),
        st.tuples(st.just("restore"), st.just(0)),
    ),
    max_size=80,
)


def half_at(queue_offset: int) -> Half:
    return Half(queue_offset, position=queue_offset * 100, size=90, stored_ms=queue_offset // 3)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, asked=st.integers(0, 100))
def test_a_table_holds_what_a_dict_would(steps: list[tuple[str, int]], asked: int) -> None:
    table, model = HalfTable(decided_max=8), dict[int, Half]()
    next_offset = 0
    for kind, number in steps:
        open_offsets = sorted(model)
        if kind == "add":
            half = half_at(next_offset + number)
            table.add(half)
            model[half.queue_offset] = half
            next_offset = half.queue_offset + 1
        elif kind == "restore":
            image = table.capture()
            table = HalfTable(decided_max=8)
            table.restore(image)
        elif kind == "decide" and open_offsets:
            gone = open_offsets[number % len(open_offsets)]
            table.decide(gone, "commit")
            del model[gone]
            assert table.decision(gone) == "commit"
        elif kind == "check" and open_offsets:
            checked = open_offsets[number % len(open_offsets)]
            table.check(checked)
            before = model[checked]
            model[checked] = Half(
                checked, before.position, before.size, before.stored_ms, before.checks + 1
            )
        assert table.undecided() == [model[offset] for offset in sorted(model)]
        assert len(table) == len(model)
        assert table.progress == min(model, default=next_offset)
        oldest = model.get(table.progress)
        assert table.begin_position == (None if oldest is None else oldest.position)
        assert table.get(asked) == model.get(asked)
        following = [model[offset] for offset in sorted(model) if offset >= asked]
        assert list(table.undecided_from(asked)) == following


def test_an_image_does_not_follow_the_table() -> None:
    table = HalfTable(decided_max=8)
    for offset in range(3):
        table.add(half_at(offset))
    image = table.capture()
    table.decide(0, "rollback")
    table.check(1)
    table.add(half_at(3))
    assert [(half.queue_offset, half.checks) for half in image.undecided] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]


def test_rows_of_decided_halves_go() -> None:
    """However many were decided, the rows are at most some more than twice the undecided."""
    table = HalfTable(decided_max=8)
    for offset in range(20_000):
        table.add(half_at(offset))
        if offset % 10:
            table.decide(offset, "commit")
    assert len(table) == 2_000
    assert len(table._undecided) <= 2 * len(table) + 1_024
    assert [half.queue_offset for half in table.undecided_from(19_950)] == [
        *range(19_950, 20_000, 10)
    ]
