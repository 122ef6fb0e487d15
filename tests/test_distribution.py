"""Which worker takes which module: two compute, a third waits, and nothing is left."""

from __future__ import annotations

import itertools

from tests.distribution import next_unit

COMPUTE = ["tests/raft/test_core.py", "tests/verify/test_outside.py"]
WAIT = ["tests/chaos/test_members.py", "tests/integration/test_users.py"]


def test_the_first_two_compute_and_help_at_the_end() -> None:
    assert next_unit([*WAIT, *COMPUTE], 0) == COMPUTE[0]
    assert next_unit([*COMPUTE, *WAIT], 1) == COMPUTE[0]
    assert next_unit(WAIT, 1) == WAIT[0]
    assert next_unit([], 0) is None


def test_the_third_waits_alone() -> None:
    assert next_unit([*COMPUTE, *WAIT], 2) == WAIT[0]
    assert next_unit(COMPUTE, 2) is None


def test_all_units_are_dealt_out_in_their_order() -> None:
    for workers in (1, 2, 3):
        left, dealt = [*WAIT, *COMPUTE], []
        for worker in itertools.cycle(range(workers)):
            unit = next_unit(left, worker)
            if unit is not None:
                left.remove(unit)
                dealt.append(unit)
            if not left:
                break
        assert sorted(dealt) == sorted([*WAIT, *COMPUTE])
        assert [unit for unit in dealt if unit in WAIT] == WAIT
        assert [unit for unit in dealt if unit in COMPUTE] == COMPUTE
