"""Clean seeds pass, the same seed has the same course, and a failure says how to replay itself."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from chaos.sim.campaign.campaign import CampaignResult, replay, run_campaign, run_seed
from chaos.sim.campaign.command import parse_seeds, sim_command
from chaos.sim.campaign.seeds import kind_of_seed, node_count_of_seed
from chaos.sim.seed.core_options import FAULTS
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.group_options import GROUP_FAULTS

# Drawn from 10,000..10,099, in which all that is looked for below occurs, so that it still does.
_SEEDS = (
    *range(10_000, 10_014),
    *(10_018, 10_028, 10_031, 10_037, 10_038, 10_043, 10_044, 10_050),
    *(10_067, 10_068, 10_086, 10_087, 10_091, 10_094),
)

_NEVER_ZERO = (
    "elections",
    "pre_vote_rejections",
    "vote_rejections",
    "step_downs_by_check_quorum",
    "step_downs_by_term",
    "truncations_of_durable_entries",
    "proposals_truncated",
    "proposals_at_stale_leaders",
    "reads_served",
    "crashes_in_disk_operations",
    "crashes_in_steps",
    "lost_unsynced_bytes",
    "torn_writes",
    "torn_tails_cut",
    "tails_survived_unsynced",
    "pauses",
    "messages_delivered_stale",
    "messages_duplicated",
)


@pytest.fixture(scope="module")
def campaign() -> CampaignResult:
    return run_campaign(_SEEDS, None, jobs=2)


def test_clean_seeds_pass(campaign: CampaignResult) -> None:
    assert campaign.seeds_run == len(_SEEDS)
    assert not campaign.failures, "\n".join(str(failure) for failure in campaign.failures)


@pytest.mark.parametrize("counter", _NEVER_ZERO)
def test_the_campaign_comes_upon(campaign: CampaignResult, counter: str) -> None:
    assert campaign.coverage[counter] > 0


def test_every_fault_is_injected(campaign: CampaignResult) -> None:
    names = {*FAULTS, *GROUP_FAULTS}
    assert [name for name in sorted(names) if not campaign.coverage[f"fault:{name}"]] == []


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_groups_of_other_sizes_pass(nodes: int) -> None:
    failures = [run_seed(seed, nodes, kind="core")[0] for seed in range(10)]
    assert failures == [None] * 10


@pytest.mark.parametrize("seed", [4, 19])  # bare cores, a whole group
def test_same_seed_has_the_same_course_under_another_hash_seed(seed: int) -> None:
    """Byte for byte, in processes whose sets of strings have different orders."""
    script = f"from chaos.sim.campaign.campaign import replay; print(replay({seed}, None).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {f"{replay(seed, None).digest}\n"}


def test_other_seeds_have_other_courses() -> None:
    assert replay(3, 3).digest != replay(4, 3).digest


def test_tracing_changes_nothing() -> None:
    assert run_seed(5, None)[1] == replay(5, None).coverage


def test_failure_names_seed_rule_and_replay_command() -> None:
    """With a planted bug, in a process of its own."""
    script = """
from campaigns.mutants.catalogue import MUTANTS
from campaigns.mutants.source_patch import plant
plant(MUTANTS["matching tail truncated"].patches)
from chaos.sim.campaign.campaign import replay, run_seed
failure, _ = run_seed(0, 3)
again = replay(0, 3)
assert again.failure == failure
assert again.trace
print(failure)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("SEED=0 (core, 3 nodes) R4: ")
    assert "ledgermq sim --replay 0 --nodes 3" in done.stdout


def test_nodes_alternate() -> None:
    kinds = [kind_of_seed(seed) for seed in range(8)]
    assert kinds == ["core", "core", "core", "group"] * 2
    assert [node_count_of_seed(seed, kinds[seed], None) for seed in range(8)] == [
        *(3, 5, 3, 5),
        *(3, 5, 3, 3),
    ]


def test_coverage_knows_its_counters_only() -> None:
    with pytest.raises(KeyError):
        Coverage().add({"no such counter": 1})


def test_command_reports_a_campaign() -> None:
    out, err = io.StringIO(), io.StringIO()
    assert sim_command(seeds="0..3", jobs=1, out=out, err=err) == 0
    assert "4 seeds in" in out.getvalue()
    assert "passed" in out.getvalue()


def test_command_replays_a_seed() -> None:
    out = io.StringIO()
    assert sim_command(replay_seed=2, nodes=3, out=out) == 0
    assert "seed=2\nnode_count=3\n" in out.getvalue()
    assert "is leader in term" in out.getvalue()
    assert out.getvalue().endswith("SEED=2 passed\n")


@pytest.mark.parametrize("text", ["", "a..b", "5..1", "1..", "-3..4"])
def test_wrong_seeds_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="seeds: "):
        parse_seeds(text)
    assert sim_command(seeds=text, err=io.StringIO()) == 64


def test_seeds_include_the_last() -> None:
    assert parse_seeds("1..3") == range(1, 4)
    assert parse_seeds("7") == range(7, 8)
