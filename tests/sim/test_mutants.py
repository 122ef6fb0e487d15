"""Each planted bug must be caught within 500 seeds: else the simulator proves nothing.

Seeds are the same ones that the clean campaign runs, in the same order; a mutant stops at its
first catch.
"""

from __future__ import annotations

import sys

import pytest

from chaos.sim.campaign import SeedFailure, run_seed
from tests.mutants.catalogue import MUTANTS, Mutant

_SEEDS_MAX = 500


def _seeds_until_caught(mutant: Mutant) -> tuple[int, SeedFailure | None]:
    with mutant.planted() as parts:
        for seed in range(_SEEDS_MAX):
            failure, _ = run_seed(seed, None, parts=parts)
            if failure is not None:
                return seed + 1, failure
    return _SEEDS_MAX, None


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    count, failure = _seeds_until_caught(MUTANTS[name])
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: caught after {count} seeds: {failure}\n")
    assert failure is not None, f"{name}: not caught within {count} seeds"
