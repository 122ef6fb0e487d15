"""The table of docs/TESTING.md on bugs that are planted into real processes, from its figures.

python -m campaigns.mutants.live.score_table figures/planted.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.mutants.live.catalogue import LIVE_AREAS

__all__ = ["score_table"]


def score_table(figures: Mapping[str, Any]) -> str:
    """A line for each bug; of one that ran with several seeds, what all of them say together."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in figures["rows"]:
        rows.setdefault(row["name"], []).append(row)
    lines = ["| planted bug | what it breaks | verdict | seen by | also |", "|---|---|---|---|---|"]
    for area, mutants in LIVE_AREAS.items():
        lines.append(f"| **{area}** | | | | |")
        for mutant in mutants:
            found = rows.get(mutant.name, [])
            verdict, seen = _verdict_and_rules(found)
            seen = seen or f"nothing: {mutant.survives}".removesuffix(": ")
            words = [mutant.name, mutant.breaks, verdict, seen, _also(found)]
            lines.append("| " + " | ".join(word.replace("|", "/") for word in words) + " |")
    return "\n".join(lines)


def _verdict_and_rules(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Verdict, and the rules that the bug names."""
    if not rows:
        return "not run", "not run"
    verdicts = sorted({row["verdict"] for row in rows})
    count = f", {sum(row['as_expected'] for row in rows)} of {len(rows)}" if len(rows) > 1 else ""
    seen = _ordered(rule for row in rows for rule in row["seen_by"])
    return ", ".join(verdicts) + count, seen


def _also(rows: Sequence[Mapping[str, Any]]) -> str:
    """Other rules that failed."""
    return _ordered(
        rule for row in rows for rule in row.get("failed", ()) if rule not in row["seen_by"]
    )


def _ordered(rules: Iterable[str]) -> str:
    return " ".join(sorted(set(rules), key=lambda rule: (rule[0], int(rule[1:]))))


def main() -> None:
    figures = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(score_table(figures) + "\n")


if __name__ == "__main__":
    main()
