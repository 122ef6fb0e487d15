"""docs/FAULTS.md is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from chaos.experiment.fault_page import page
from chaos.nemesis.catalogue import CATALOGUE

PAGE = Path(__file__).parents[3] / "docs" / "FAULTS.md"


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
