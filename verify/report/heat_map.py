"""The heat map of a campaign: what each system lost, and how long it was away, by scenario.

Place in the data path: `verify.report.campaign_page` puts it above the matrices of a campaign that
compares several systems. Pure.

Invariants: a cell says in words what its colour says; colours are those of Okabe and Ito, told
apart without colour vision; every text is escaped; the drawing needs no script and fetches nothing.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from verify.report.wording import clipped, number

__all__ = ["heat_map"]

_LABEL_PX: Final = 150
_CELL_PX: Final = 172
_ROW_PX: Final = 60
_HEAD_PX: Final = 44
_NAME_MAX: Final = 30
_AWAY_MS: Final = (100.0, 30_000.0)  # from white to full colour
_LOST_MAX: Final = 1_000.0
_ORANGE: Final = (230, 159, 0)
_VERMILION: Final = (213, 94, 0)
_GREEN: Final = (0, 158, 115)
_PALE: Final = (247, 249, 250)


def heat_map(rows: Sequence[Mapping[str, Any]], systems: Sequence[str]) -> str:
    """Return an SVG with a row per scenario and a column per system.

    `rows`: of `chaos.campaign.summary`, "scenarios". A cell is vermilion where something was lost,
    by how much; else orange by the median time without an acknowledged write, green where that is
    short.
    """
    width = _LABEL_PX + _CELL_PX * len(systems)
    height = _HEAD_PX + _ROW_PX * len(rows)
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
        ' xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Messages lost and time away, by scenario and system</title>",
    ]
    for column, system in enumerate(systems):
        x = _LABEL_PX + column * _CELL_PX + _CELL_PX / 2
        parts.append(_text(x, _HEAD_PX - 12, system, anchor="middle", weight="bold"))
    for line, row in enumerate(rows):
        y = _HEAD_PX + line * _ROW_PX
        parts.append(_text(_LABEL_PX - 10, y + _ROW_PX / 2 + 4, str(row["name"]), anchor="end"))
        for column, system in enumerate(systems):
            parts += _cell(row["cells"].get(system), _LABEL_PX + column * _CELL_PX, y)
    parts.append("</svg>")
    return "\n".join(parts)


def _cell(cell: Mapping[str, Any] | None, x: float, y: float) -> list[str]:
    if cell is None or not cell["runs"]:
        return [_box(x, y, _PALE), _text(x + _CELL_PX / 2, y + 33, "not tried", anchor="middle")]
    lost, away = cell["lost"], cell["unavailable_p50_ms"]
    if lost:
        colour = _between(_PALE, _VERMILION, 0.35 + 0.65 * _share(lost, 1.0, _LOST_MAX))
    elif away is None:
        colour = _PALE
    elif away <= _AWAY_MS[0]:
        colour = _between(_PALE, _GREEN, 0.5)
    else:
        colour = _between(_PALE, _ORANGE, 0.15 + 0.85 * _share(away, *_AWAY_MS))
    first = f"{number(lost)} lost of {number(cell['acknowledged'])}"
    more = [f"{name} {number(cell[name])}" for name in ("doubled", "rewound") if cell[name]]
    second = "" if away is None else f"away {_seconds(away)}"
    reads = cell["unread_p50_ms"]
    third = "" if reads is None else f"reads {_seconds(reads)}"
    middle = x + _CELL_PX / 2
    return [
        _box(x, y, colour),
        _text(middle, y + 15, first, anchor="middle", weight="bold" if lost else "normal"),
        _text(middle, y + 29, second, anchor="middle"),
        _text(middle, y + 42, third, anchor="middle"),
        _text(middle, y + 54, ", ".join(more), anchor="middle", size=10),
    ]


def _box(x: float, y: float, colour: tuple[int, int, int]) -> str:
    fill = "#{:02x}{:02x}{:02x}".format(*colour)
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_CELL_PX - 2}" height="{_ROW_PX - 2}" rx="3"'
        f' fill="{fill}"/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str, weight: str = "normal", size: int = 12
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}"'
        f' font-size="{size}" fill="#1F2933">{html.escape(clipped(text, _NAME_MAX))}</text>'
    )


def _share(value: float, low: float, high: float) -> float:
    """Return where `value` lies between both, 0 to 1, by its logarithm."""
    if value <= low:
        return 0.0
    return min(1.0, math.log(value / low) / math.log(high / low))


def _between(
    low: tuple[int, int, int], high: tuple[int, int, int], share: float
) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
