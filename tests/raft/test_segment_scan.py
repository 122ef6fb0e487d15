"""Fragments of a log: where an entry ends, and where none does."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from raft.log.segment_scan import Fragment
from raft.messages import Index


@given(st.lists(st.integers(1, 50), max_size=8), st.integers(0, 20))
def test_every_position_is_a_boundary_or_none(sizes: list[int], begin: int) -> None:
    """Of each byte position around and within a fragment, against a plain walk."""
    positions = [begin]
    for size in sizes:
        positions.append(positions[-1] + size)
    fragment = Fragment(
        first_index=Index(5),
        position=begin,
        chain_before=100,
        end_position=positions[-1],
        positions=array("Q", positions[:-1]),
        chains=array("I", range(101, 101 + len(sizes))),
    )
    boundaries = {at: (4 + count, 100 + count) for count, at in enumerate(positions)}
    for position in range(positions[-1] + 3):
        assert fragment.boundary(position) == boundaries.get(position)
