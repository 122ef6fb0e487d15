"""The mutation score as a table for docs/TESTING.md.

    python -m campaigns.mutants.score_table figures/mutants.json

Place in the data path: reads what `campaign` has written; whoever changes a mutant or the simulator
runs both, and puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["score_table"]


def score_table(figures: Mapping[str, Any]) -> str:
    """One row per mutant, by area."""
    lines = ["| planted bug | a real system that had it | runs | seen by | seeds |"]
    lines.append("|---|---|---|---|---|")
    area = ""
    for row in figures["rows"]:
        if row["area"] != area:
            area = row["area"]
            lines.append(f"| **{area}** | | | | |")
        seen_by = row["killed_by"] or "nothing"
        cells = (row["name"], row["published"], row["kind"], seen_by, str(row["seeds"]))
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    figures = json.loads(parser.parse_args().figures.read_text(encoding="utf-8"))
    sys.stdout.write(score_table(figures) + "\n")


if __name__ == "__main__":
    main()
