"""The tables of docs/MODES.md say what the runs of their campaign counted."""

from __future__ import annotations

from typing import Any

import pytest

from campaigns.modes_page import BEGIN, END, cell_text, replaced, tables


def run(engine: str = "raft", scenario: str = "killed", **more: Any) -> dict[str, Any]:
    counts = {"lost": 0, "doubled": 0, "hidden": 0, "gone": 0, "rewound": 0}
    return {
        "engine": engine,
        "scenario": scenario,
        "world": more.pop("world", "local"),
        "seed": 1,
        "counts": {**counts, **more.pop("counts", {})},
        "acknowledged": 1_000,
        "faults": {"kill": {"taken": 1}},
        "recoveries": [("kill", 400.0)],
        "reads": [("kill", 30.0)],
        "before": {"per_second": 200.0, "p50_ms": 3.0, "p99_ms": 9.0},
        **more,
    }


def test_a_cell_sums_over_its_seeds() -> None:
    rows = [
        run(counts={"lost": 2, "rewound": 1}, recoveries=[("kill", 100.0)]),
        run(counts={"lost": 3}, recoveries=[("kill", 2_300.0)]),
        run(faults={"kill": {"not_taken": 1}}, recoveries=[]),
        run(faults={}, counts={}, acknowledged=0),
    ]
    assert cell_text(rows) == (
        "**5 lost** of 3,000; 1 offsets back; writes 100 ms / 2.3 s; reads 30 ms / 30 ms;"
        " taken 2 of 3; 1 broke off"
    )
    assert cell_text([]) == "not tried"
    assert cell_text([run(faults={})]) == "1 broke off"


def test_tables_have_a_row_per_fault_and_a_column_per_engine() -> None:
    index = {"runs": [run("async", "cut-off"), run("raft", "killed"), run("raft", "cut-off")]}
    lines = tables(index).splitlines()
    assert lines[0] == "World local, 1 seed a cell, 3 runs:"
    assert lines[2] == "| fault | raft | async |"
    assert [line.split("|")[1].strip() for line in lines[4:6]] == ["cut-off", "killed"]
    assert "not tried" in lines[5]
    assert "| raft | 2 | 200 | 3.0 ms | 9.0 ms |" in lines
    assert "200" not in tables({"runs": [run(world="sim")]}), "virtual time has no rates"


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = replaced(document, "new\n")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(once, "new\n") == once
    with pytest.raises(ValueError, match="lacks"):
        replaced("no markers", "new")
