"""What the drill of every fault saw, as the page docs/FAULT_DRILL.md: read and written.

The page is the drill's only record: `campaigns.drills.every_fault` reads from it what is known, and
writes it anew with what it has measured. Pure.

Invariant: `read_page` of what `write_page` wrote returns the same figures, in the order of the
catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos.nemesis.catalogue import CATALOGUE

__all__ = ["EVIDENCE_MAX", "Figure", "read_page", "write_page"]

EVIDENCE_MAX: Final = 400
_YES: Final = "yes"
_NO: Final = "no"
_NONE: Final = "-"
_COLUMNS: Final = (
    "fault",
    "world",
    "effect",
    "effect after, s",
    "healed",
    "healed after, s",
    "what its probes said",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the page; `effect_s` and `heal_s` are seconds from the injection and the heal."""

    name: str
    world: str
    effect: str
    effect_s: float | None
    healed: bool
    heal_s: float | None
    evidence: str


def write_page(figures: Iterable[Figure]) -> str:
    """Return the text of the page. Figures of faults that there are no more are left out."""
    known = {figure.name: figure for figure in figures}
    rows = [known[name] for name in CATALOGUE if name in known]
    seen = sum(row.effect == "taken" and row.healed for row in rows)
    lines = [
        "# The drill of every fault",
        "",
        f"{seen} of {len(CATALOGUE)} faults of [FAULTS](FAULTS.md) were seen to take effect on a"
        " live cluster under load, and to heal. Made by"
        " `python -m campaigns.drills.every_fault --page docs/FAULT_DRILL.md`: the seconds are"
        " those of one machine on one day, from the injection to the first probe that saw the"
        " effect, and from the heal to the first that saw it gone; the last column is what the"
        f" probes said, the first {EVIDENCE_MAX} characters of it.",
        "",
        _line(_COLUMNS),
        _line("---" for _ in _COLUMNS),
    ]
    lines += [
        _line(
            (
                f"`{row.name}`",
                row.world,
                row.effect,
                _seconds(row.effect_s),
                _YES if row.healed else _NO,
                _seconds(row.heal_s),
                _one_cell(row.evidence),
            )
        )
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def read_page(text: str) -> list[Figure]:
    """Return the page's figures. Raises ValueError where a row is none of `write_page`."""
    figures = []
    for line in text.splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name, world, effect, effect_s, healed, heal_s, evidence = cells
        figures.append(
            Figure(
                name=name.strip("`"),
                world=world,
                effect=effect,
                effect_s=None if effect_s == _NONE else float(effect_s),
                healed=healed == _YES,
                heal_s=None if heal_s == _NONE else float(heal_s),
                evidence=evidence,
            )
        )
    return figures


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _one_cell(text: str) -> str:
    """Return the text without what would end a cell of Markdown or be taken for code."""
    flat = " ".join(text.replace("|", "/").replace("`", "'").split())
    return flat if len(flat) <= EVIDENCE_MAX else flat[: EVIDENCE_MAX - 1].rstrip() + "…"
