"""The heat map of a campaign: a cell's colour and its words say the same, and texts are escaped."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from verify.report.heat_map import heat_map

SYSTEMS = ["raft", "async <b>"]


def cell(lost: int = 0, away_ms: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "runs": 5,
        "lost": lost,
        "acknowledged": 1_000,
        "doubled": 0,
        "rewound": 0,
        "unavailable_p50_ms": away_ms,
        "unread_p50_ms": None,
        **more,
    }


def drawn(*cells: dict[str, Any] | None) -> list[tuple[tuple[int, ...], str]]:
    """Return colour and words of each cell of the first system, a row each."""
    rows = [
        {"name": f"row {number}", "cells": {} if each is None else {"raft": each}}
        for number, each in enumerate(cells)
    ]
    root = ElementTree.fromstring(heat_map(rows, ["raft"]))
    space = "{http://www.w3.org/2000/svg}"
    boxes = [box.attrib for box in root.iter(f"{space}rect")]
    texts = [(float(text.attrib["y"]), text.text or "") for text in root.iter(f"{space}text")]
    found = []
    for box in boxes:
        top, bottom = float(box["y"]), float(box["y"]) + float(box["height"])
        words = " | ".join(text for y, text in texts if top < y < bottom)
        hexes = re.fullmatch(r"#(..)(..)(..)", box["fill"])
        assert hexes is not None
        found.append((tuple(int(part, 16) for part in hexes.groups()), words))
    return found


def test_what_was_lost_is_seen_before_what_was_away() -> None:
    quick, away, longer, lost, worse, untried = drawn(
        cell(away_ms=20.0),
        cell(away_ms=800.0),
        cell(away_ms=20_000.0),
        cell(lost=1, away_ms=20_000.0),
        cell(lost=900, rewound=4),
        None,
    )
    assert "0 lost of" in quick[1]
    assert "away 20 ms" in quick[1]
    assert "not tried" in untried[1]
    assert "900 lost of" in worse[1]
    assert "rewound 4" in worse[1]

    def blue(each: tuple[tuple[int, ...], str]) -> int:
        return each[0][2]

    assert blue(away) > blue(longer), "the deeper the longer it was away"
    assert blue(lost) > blue(worse), "the deeper the more was lost"
    red, green, _ = worse[0]
    assert red > 2 * green - 20, "vermilion"
    assert quick[0][1] > quick[0][0], "green"


def test_names_are_escaped() -> None:
    text = heat_map([{"name": "<script>", "cells": {}}], SYSTEMS)
    assert "<script>" not in text
    assert "async &lt;b&gt;" in text
