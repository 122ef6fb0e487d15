"""Every mutant fits the source as it is; a few of them are really caught; the clean system isn't.

The whole score takes minutes: `make mutants`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.mutants import campaign
from campaigns.mutants.campaign import Row, exit_code, table
from campaigns.mutants.catalogue import MUTANTS
from campaigns.mutants.score_table import score_table
from campaigns.mutants.source_patch import PatchError, SourcePatch, patched_text, source_of

_CPU_S_MAX = 120
_WALL_S_MAX = 1_800
"""For a worker that waits for ever; a busy machine alone takes it nowhere near."""
ROOT = Path(__file__).resolve().parent.parent.parent
QUICK = (
    "vote given twice in a term",
    "old-term entry committed by counting",
    "fsync skipped",
    "ReadIndex without a round",
    "start acts on what is in the page cache alone",
    "one slot written",
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_source(name: str) -> None:
    texts: dict[str, str] = {}
    for patch in MUTANTS[name].patches:
        text = texts.get(patch.module) or source_of(patch.module).read_text(encoding="utf-8")
        texts[patch.module] = patched_text(text, patch)
    for module, text in texts.items():
        assert text != source_of(module).read_text(encoding="utf-8")
        compile(text, module, "exec")


def test_there_are_enough_mutants_and_few_are_given_up() -> None:
    assert len(MUTANTS) >= 40
    assert sum(bool(mutant.survives) for mutant in MUTANTS.values()) <= 2
    assert all(mutant.expected for mutant in MUTANTS.values())


def _seeds_of(name: str | None, seeds: str) -> dict[str, object]:
    """What the worker says, in a process of its own, which the kernel ends after so much processor
    time: however busy the machine is."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S_MAX}, {_CPU_S_MAX}))\n"
        "from campaigns.mutants.worker import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name or "--clean", "--seeds", seeds],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_WALL_S_MAX,
        check=True,
    )
    outcome: dict[str, object] = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_killed(name: str) -> None:
    outcome = _seeds_of(name, "1..40")
    assert outcome["killed"]
    assert outcome["rule"] in MUTANTS[name].expected


def test_the_clean_system_is_not() -> None:
    assert not _seeds_of(None, "1..8")["killed"]


def _patch(before: str, after: str, within: str = "") -> SourcePatch:
    return SourcePatch(module="m", before=before, after=after, within=within)


SOURCE = """
class A:
    def f(self):
        if self.x:
            return 1
        return 2

    def g(self):
        return 2
"""


def test_a_patch_keeps_the_indentation() -> None:
    patch = _patch("if self.x:\n    return 1", "while self.x:\n    pass", within="A.f")
    assert "        while self.x:\n            pass\n        return 2\n" in patched_text(
        SOURCE, patch
    )


@pytest.mark.parametrize(
    "patch",
    [
        _patch("return 2", "return 3"),
        _patch("return 4", "return 3"),
        _patch("return 2", "return 3", within="A.h"),
        _patch("self.x:", "self.y:"),
        _patch("if self.x:\n    return 2", "pass"),
    ],
    ids=["two places", "no place", "no such function", "part of a line", "lines differ"],
)
def test_a_patch_that_does_not_fit_is_an_error(patch: SourcePatch) -> None:
    with pytest.raises(PatchError):
        patched_text(SOURCE, patch)


def test_a_patch_within_a_function_leaves_the_others_alone() -> None:
    text = patched_text(SOURCE, _patch("return 2", "return 3", within="A.g"))
    assert text.count("return 2") == 1
    assert text.rstrip().endswith("return 3")


def test_a_module_imported_already_is_not_planted() -> None:
    code = (
        "import raft.core.quorum\n"
        "from campaigns.mutants.source_patch import PatchError, SourcePatch, plant\n"
        "patch = SourcePatch(\n"
        "    module='raft.core.quorum', before='import enum', after='import enum as e'\n)\n"
        "try:\n    plant([patch])\n"
        "except PatchError:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"


def _row(rule: str) -> Row:
    name = next(name for name, mutant in MUTANTS.items() if not mutant.survives)
    return Row(name=name, area="election", rule=rule, detail="", seeds=1, took_s=0.1)


def test_the_score_can_say_no() -> None:
    assert exit_code([_row("R2")], clean_passed=True) == 0
    assert exit_code([_row("R2")], clean_passed=False) == 1
    assert exit_code([_row("survived")], clean_passed=True) == 1
    assert exit_code([_row("not run")], clean_passed=True) == 2
    assert "(!)" in table([_row("no such rule")])


def test_a_mutant_that_takes_too_long_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "_WORKER_S_MAX", 0.01)
    (row,) = campaign.run_campaign([QUICK[0]], "1..2", 1)
    assert (row.rule, row.detail) == ("not run", "ended after 0 s")


def test_the_score_says_who_saw_what() -> None:
    row = {"name": "m", "area": "election", "published": "a|b", "kind": "core", "seeds": 3}
    rows = [{**row, "killed_by": "R2"}, {**row, "killed_by": None}]
    table = score_table({"rows": rows}).splitlines()
    assert table[2:] == [
        "| **election** | | | | |",
        "| m | a/b | core | R2 | 3 |",
        "| m | a/b | core | nothing | 3 |",
    ]
