"""The laboratory finds a real bug in running brokers: answers before fsync and majority."""

from __future__ import annotations

import pytest

from tests.mutants.planted_experiments import run_planted


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(450)
def test_an_experiment_on_brokers_that_answer_too_early_fails_and_names_the_lost(tmp_path):
    result = run_planted(tmp_path / "run", seed=3)
    assert result.get("verdict") == "fail", result
    assert result["exit_code"] == 1
    assert result["lost_named"], result
