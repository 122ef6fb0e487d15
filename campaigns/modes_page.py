"""The tables of docs/MODES.md: what each engine loses under each fault, and how long it is away.

    python -m campaigns.modes_page DIR... [--document docs/MODES.md]

DIR: the folder of `campaigns/modes.toml`, or of `campaigns/modes-local.toml`. With a document the
tables replace what stands between its markers; without one they are printed.

A cell counts over the seeds of one scenario and engine: messages lost of those acknowledged, stored
twice, consumer offsets that went back; then the time without an acknowledged write and without an
answered read around the fault, as p50 / p95 over the seeds. A run that could not be judged for lack
of a part counts by what could be; one that broke off (no verdict, or a failure of the laboratory)
counts as none and is said.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["cell_text", "replaced", "tables"]

BEGIN: Final = "<!-- tables made by campaigns/modes_page.py -->"
END: Final = "<!-- end of the tables -->"
SIMULATED: Final = "sim"  # where rates and latencies are virtual
ENGINES: Final = ("raft", "sync-flush", "sync", "async-flush", "async", "pysyncobj")

Run = Mapping[str, Any]


def tables(index: Mapping[str, Any]) -> str:
    """Return the tables of a campaign. `index`: its index.json."""
    runs: Sequence[Run] = index["runs"]
    worlds = sorted({run["world"] for run in runs})
    runs_of = Counter((run["scenario"], run["engine"]) for run in runs)
    least, most = min(runs_of.values(), default=0), max(runs_of.values(), default=0)
    seeds = f"{least}" if least == most else f"{least} to {most}"
    engines = [name for name in ENGINES if any(run["engine"] == name for run in runs)]
    scenarios = list(dict.fromkeys(run["scenario"] for run in runs))
    lines = [
        f"World {', '.join(worlds)}, {seeds} seed{'s' * (most != 1)} a cell, {len(runs)} runs:",
        "",
        f"| fault | {' | '.join(engines)} |",
        f"|---|{'---|' * len(engines)}",
    ]
    for scenario in scenarios:
        cells = [
            cell_text([r for r in runs if (r["scenario"], r["engine"]) == (scenario, engine)])
            for engine in engines
        ]
        lines.append(f"| {scenario} | {' | '.join(cells)} |")
    if SIMULATED not in worlds:
        lines += ["", *_before(runs, engines)]
    return "\n".join(lines) + "\n"


def cell_text(runs: Sequence[Run]) -> str:
    """Return the words of one cell."""
    if not runs:
        return "not tried"
    judged = [run for run in runs if run["faults"]]
    if not judged:
        return f"{len(runs)} broke off"
    counts = {
        name: sum(run["counts"].get(name, 0) for run in judged) for name in judged[0]["counts"]
    }
    acknowledged = sum(run["acknowledged"] for run in judged)
    lost = counts.get("lost", 0)
    parts = [f"{'**' if lost else ''}{lost:,} lost{'**' if lost else ''} of {acknowledged:,}"]
    words = {"doubled": "twice", "rewound": "offsets back", "hidden": "unread", "gone": "gone"}
    parts += [f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)]
    parts.append(
        f"writes {_percentiles([took for run in judged for _, took in run['recoveries']])}"
    )
    reads = [took for run in judged for _, took in run["reads"]]
    if reads:
        parts.append(f"reads {_percentiles(reads)}")
    taken = sum(effects.get("taken", 0) for run in judged for effects in run["faults"].values())
    if taken < len(judged):
        parts.append(f"taken {taken} of {len(judged)}")
    if len(judged) < len(runs):
        parts.append(f"{len(runs) - len(judged)} broke off")
    return "; ".join(parts)


def _before(runs: Sequence[Run], engines: Sequence[str]) -> list[str]:
    lines = [
        "| engine | runs | offered and acknowledged per second | p50 | p99 |",
        "|---|---|---|---|---|",
    ]
    for engine in engines:
        before = [run["before"] for run in runs if run["engine"] == engine and run["before"]]
        middle = {
            name: _percentile([each[name] for each in before], 0.5)
            for name in ("per_second", "p50_ms", "p99_ms")
        }
        lines.append(
            f"| {engine} | {len(before)} | {middle['per_second']:.0f} |"
            f" {middle['p50_ms']:.1f} ms | {middle['p99_ms']:.1f} ms |"
        )
    return lines


def _percentiles(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{_seconds(_percentile(values, 0.5))} / {_seconds(_percentile(values, 0.95))}"


def _percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile; 0 of nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def _seconds(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def replaced(document: str, text: str) -> str:
    """Return the document with `text` between its markers. Raises ValueError where it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--document", type=Path)
    options = parser.parse_args()
    text = "\n".join(
        tables(json.loads((directory / "index.json").read_text(encoding="utf-8")))
        for directory in options.directories
    )
    if options.document is None:
        sys.stdout.write(text)
        return 0
    document = options.document.read_text(encoding="utf-8")
    options.document.write_text(replaced(document, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
