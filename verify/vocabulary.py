"""The check that a run uses the format's vocabulary, made before any rule.

Place in the data path: `verify.judge` runs it once the tables are loaded. A row with an unknown f,
type, event, kind, role, decision or effect, an operation that occurs twice, or one whose times
contradict its type, would be missed by every rule that selects known values, and so pass. One that
names no replica, or no place, would be missed where it is looked for, and so accuse the system.

Invariant: one such row makes the whole run unknown; it is never a violation of the system's.

Source: docs/RUN_FORMAT.md, "Rules that the checks share"; `vocabulary.sql`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from verify.catalogue.rule_files import Rule
from verify.engines.engine import Engine

__all__ = ["VOCABULARY", "HarnessError", "refuse_unknown_words"]

_PATH: Final = Path(__file__).with_suffix(".sql")

VOCABULARY: Final = Rule(
    id="vocabulary",
    name="words that the format does not know",
    promise=None,
    needs=(),
    wants=("ops", "faults", "raft", "log", "cq"),
    applies="select true",
    examined="select 0",
    nothing="",
    holds="Every row is in the format's words.",
    rule="Rows outside the format's vocabulary are an error of whoever recorded the run.",
    source="the run format",
    text=_PATH.read_text(encoding="utf-8"),
    path=_PATH,
)

_NUMBERS: Final = {
    "ops": "op",
    "faults": "fault",
    "raft": "seq",
    "log": "index",
    "cq": "queue_offset",
}
"""The column that numbers the rows of each table."""


class HarnessError(Exception):
    """The run was recorded wrongly, so nothing is proven; the message names the smallest row."""


def refuse_unknown_words(engine: Engine) -> None:
    """Check all tables, which `engine` must hold.

    Raises:
        HarnessError: a row is outside the format's vocabulary.
        EngineError: the query fails.
    """
    found = engine.findings(VOCABULARY)
    if found.violations:
        first = found.smallest_violations[0]
        place = _NUMBERS[str(first["in_table"])]
        raise HarnessError(
            f"the run was not recorded in the format's words, so nothing is proven: "
            f"{found.violations} rows, the first in table {first['in_table']}, where "
            f"{place} is {first['at']}: {first['what']} is {first['found']}"
        )
