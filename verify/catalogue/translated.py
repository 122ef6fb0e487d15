"""All texts of a catalogue, translated before the first run is judged.

Place in the data path: `ledgermq.fork_server` calls it once; `verify.catalogue.dialect` holds what
it has translated, so that the processes forked from that one judge without a parser.
"""

from __future__ import annotations

from collections.abc import Iterable

from verify.catalogue.dialect import duckdb_text, tables_of
from verify.catalogue.rule_files import Rule, Stage

__all__ = ["translate"]


def translate(rules: Iterable[Rule], stages: Iterable[Stage]) -> None:
    """Translate rules, their headers and stages. Raises DialectError."""
    for rule in rules:
        for header in (rule.applies, rule.listed, rule.examined):
            duckdb_text(header, name=rule.id)
        tables_of(rule.text, name=rule.id)
        duckdb_text(rule.text, name=rule.id)
    for stage in stages:
        tables_of(stage.text, name=stage.name)
        duckdb_text(stage.text, name=stage.name)
