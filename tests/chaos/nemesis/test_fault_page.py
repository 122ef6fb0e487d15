"""docs/FAULTS.md is what the catalogue says, docs/FAULT_DRILL.md what the drill saw of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from campaigns.drills.fault_figures import EVIDENCE_MAX, Figure, read_page, write_page
from chaos.experiment.fault_page import page
from chaos.nemesis.catalogue import CATALOGUE

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "FAULTS.md"


def test_the_page_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_fault_stands_in_a_class_and_says_all() -> None:
    text = page()
    assert "## Others" not in text
    assert len(CATALOGUE) >= 60
    for name, spec in CATALOGUE.items():
        assert f"| `{name}`" in text
        assert spec.seen_elsewhere, name
        assert spec.parts or spec.effects, name
        assert set(spec.choices) <= set(spec.parameters), name
        for key, allowed in spec.choices.items():
            assert spec.parameters[key] in allowed, name


def test_each_was_seen_on_a_live_cluster_to_take_effect_and_to_heal() -> None:
    """`python -m campaigns.drills.every_fault --page docs/FAULT_DRILL.md` adds what is missing."""
    text = (ROOT / "docs/FAULT_DRILL.md").read_text(encoding="utf-8")
    figures = read_page(text)
    assert [figure.name for figure in figures] == list(CATALOGUE)
    assert all(figure.effect == "taken" and figure.healed for figure in figures)
    assert write_page(figures) == text, "written by the drill, not by hand"


def test_what_a_probe_says_stays_in_its_cell() -> None:
    figure = Figure(
        name="kill",
        world="local",
        effect="not_taken",
        effect_s=None,
        healed=False,
        heal_s=1.5,
        evidence="a | b\n`c`" + "d" * EVIDENCE_MAX,
    )
    (read,) = read_page(write_page([figure]))
    assert read.evidence.startswith("a / b 'c'ddd")
    assert len(read.evidence) <= EVIDENCE_MAX
    assert dataclasses.replace(read, evidence="") == dataclasses.replace(figure, evidence="")
