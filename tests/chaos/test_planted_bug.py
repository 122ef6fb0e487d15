"""The laboratory finds real bugs in running brokers, and plants what it says it plants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.mutants.live.catalogue import AT_ONCE, LIVE_AREAS, LIVE_MUTANTS
from campaigns.mutants.live.live_mutant import PROCESSES, LiveMutant
from campaigns.mutants.live.planting import acted, armed_environment
from campaigns.mutants.live.score_table import score_table
from campaigns.mutants.planted_experiments import judged_row, run_planted
from campaigns.mutants.source_patch import SourcePatch, patched_text, source_of

ROOT = Path(__file__).resolve().parents[2]
EARLY = LIVE_MUTANTS["answered before fsync and majority"]


@pytest.mark.cluster
@pytest.mark.timeout(450)
def test_an_experiment_on_brokers_that_answer_too_early_fails_and_names_the_lost(
    tmp_path: Path,
) -> None:
    """Each run is seen to answer too early; whether one loses anything is a matter of timing."""
    rows = []
    for seed in (3, 4, 5):
        rows.append(judged_row(EARLY, run_planted([EARLY], tmp_path / str(seed), seed=seed)))
        assert rows[-1]["as_expected"], rows[-1]
        assert rows[-1]["exit_code"] == 1
        if {"A1", "A4"} & set(rows[-1]["failed"]):  # two at a place, lost
            break
    else:
        pytest.fail(f"no run lost anything: {rows}")


def _texts(patches: list[SourcePatch]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for patch in patches:
        text = texts.get(patch.module) or source_of(patch.module).read_text(encoding="utf-8")
        texts[patch.module] = patched_text(text, patch)
    return texts


@pytest.mark.parametrize("name", LIVE_MUTANTS)
def test_a_planted_bug_fits_the_source(name: str) -> None:
    mutant = LIVE_MUTANTS[name]
    for process in PROCESSES:
        for module, text in _texts(list(mutant.patches(process))).items():
            compile(text, module, "exec")
    assert any(f'"{name}"' in patch.after or f"'{name}'" in patch.after for patch in _all(mutant))


def test_planted_lines_name_what_is_there(tmp_path: Path) -> None:
    for number, mutant in enumerate(LIVE_MUTANTS.values()):
        for process in PROCESSES:
            for module, text in _texts(list(mutant.patches(process))).items():
                file = tmp_path / str(number) / process / f"{module}.py"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    found = _undefined_names(tmp_path)
    assert found.returncode == 0, found.stdout
    (tmp_path / "stranger.py").write_text("if planted('x'):\n    no_such_name()\n")
    assert "no_such_name" in _undefined_names(tmp_path).stdout


def _undefined_names(directory: Path) -> subprocess.CompletedProcess[str]:
    words = ["check", "--isolated", "--no-cache", "--select", "F821", "--output-format", "concise"]
    words += ["--config", 'builtins = ["planted"]', str(directory)]
    argv = [sys.executable, "-m", "ruff", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _all(mutant: LiveMutant) -> list[SourcePatch]:
    return list(mutant.all_patches())


def test_many_fit_at_once() -> None:
    assert len(AT_ONCE) >= 20
    patches = dict.fromkeys(patch for name in AT_ONCE for patch in _all(LIVE_MUTANTS[name]))
    for module, text in _texts(list(patches)).items():
        compile(text, module, "exec")


def test_there_are_enough_and_few_are_given_up() -> None:
    assert len(LIVE_MUTANTS) >= 60
    assert all(mutant.expected for mutant in LIVE_MUTANTS.values())
    for mutants in LIVE_AREAS.values():
        assert all(bool(mutant.survives) <= (mutant.seeds == 1) for mutant in mutants)


def _armed(code: str, words: str, marks: Path, *mutants: LiveMutant) -> str:
    """What a process prints whose command line has these words, as a broker's has."""
    environment = armed_environment(os.environ, mutants, marks)
    done = subprocess.run(
        [sys.executable, "-c", code, "ledgermq", *words.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_bug_is_planted_where_it_belongs_and_leaves_a_mark(tmp_path: Path) -> None:
    mutant = LIVE_MUTANTS["every member takes all queues"]
    code = "from client.consume.rebalance import allocate\nprint(allocate('a', 'ab', [1, 2]))"
    assert _armed(code, "broker --config n0.toml", tmp_path, mutant) == "[1]\n"
    assert acted([mutant], tmp_path) == []
    assert _armed(code, "chaos run x.toml", tmp_path, mutant) == "[1, 2]\n"
    assert acted([mutant], tmp_path) == [mutant.name]


def test_a_process_that_can_not_be_armed_ends(tmp_path: Path) -> None:
    stranger = LiveMutant(name="no such bug", breaks="", expected=("A1",))
    told = _armed("print('went on')", "broker --config n0.toml", tmp_path, stranger)
    assert "KeyError" in told
    assert "went on" not in told


def test_the_table_says_who_saw_what() -> None:
    row = {"verdict": "fail", "failed": ["A18", "A5"], "seen_by": ["A18"], "as_expected": True}
    missed = {"verdict": "pass", "failed": [], "seen_by": [], "as_expected": False}
    figures = {
        "rows": [
            {"name": "body cut in half", **row},
            {"name": EARLY.name, **row},
            {"name": EARLY.name, **missed},
            {"name": "check asked too early", **missed},
        ]
    }
    lines = {line.split(" | ")[0]: line for line in score_table(figures).splitlines()}
    assert lines["| body cut in half"].endswith("| fail | A18 | A5 |")
    assert lines[f"| {EARLY.name}"].endswith("| fail, pass, 1 of 2 | A18 | A5 |")
    assert "| pass | nothing: it costs" in lines["| check asked too early"]
    assert lines["| dedupe window ignored"].endswith("| not run | not run |  |")
