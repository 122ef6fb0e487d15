"""Whether a run speaks the format's language: asked before any rule.

Place in the data path: `verify.judge` asks once the tables are loaded. A row whose f, type, event
or kind the format does not know, an operation that stands twice, or whose times contradict its
type, would slip through every rule that looks for what it knows, and so pass.

Invariant: one such row makes the whole run unknown; it is never a violation of the system's.

Source: the run format, "Rules that the checks share"; `vocabulary.sql`.
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
    wants=("ops", "raft", "log"),
    applies="select true",
    examined="select 0",
    nothing="",
    holds="Every row is in the format's words.",
    rule="Rows outside the format's vocabulary are an error of whoever recorded the run.",
    source="the run format",
    text=_PATH.read_text(encoding="utf-8"),
    path=_PATH,
)


class HarnessError(Exception):
    """The run was recorded wrongly, so nothing is proven; the text names the smallest row."""


def refuse_unknown_words(engine: Engine) -> None:
    """Asks the tables ops, raft and log, which `engine` must hold.

    Raises:
        HarnessError: as the class says.
        EngineError: the engine can't tell.
    """
    found = engine.findings(VOCABULARY)
    if found.violations:
        first = found.smallest_violations[0]
        place = {"ops": "op", "raft": "seq", "log": "index"}[str(first["in_table"])]
        raise HarnessError(
            f"the run was not recorded in the format's words, so nothing is proven: "
            f"{found.violations} rows, the first in table {first['in_table']}, where "
            f"{place} is {first['at']}: {first['what']} is {first['found']}"
        )
