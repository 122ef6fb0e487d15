"""The page docs/RULES.md, generated from the rule files: `python -m verify.catalogue.rule_page`.

Place in the data path: none; a test compares the page with the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from verify.catalogue.rule_files import BUILT_IN_RULES, Rule, read_rules

__all__ = ["rule_page"]

_FAMILIES: Final = {
    "A": "What clients saw",
    "S": "What the replicas hold",
    "T": "Transactions",
    "R": "Consensus, from the replicas' traces",
    "D": "Delays and timers",
    "P": "POP",
    "C": "Consumption",
    "M": "Topics, routes, users, searches and offsets",
}


def rule_page() -> str:
    """Return the whole page. Each rule has an anchor, its id in lower case."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The rules"
    yield ""
    yield (
        "Made of `verify/rules/*.sql` by `python -m verify.catalogue.rule_page`. Each rule is one "
        "query "
        "([how they are written](RULE_SQL.md)); a run is judged by all that apply to it. What the "
        "engines async and sync do not promise makes no run fail, and is told "
        "([PROMISES](PROMISES.md))."
    )
    for family, rules in groupby(read_rules(BUILT_IN_RULES), key=lambda rule: rule.id[0]):
        yield ""
        yield f"## {_FAMILIES[family]}"
        for rule in rules:
            yield ""
            yield from _of_rule(rule)


def _of_rule(rule: Rule) -> Iterator[str]:
    yield f'### <a id="{rule.id.lower()}"></a>{rule.id}: {rule.name}'
    yield ""
    yield f"{rule.holds} *Violated by:* {rule.rule}"
    yield ""
    tables = ", ".join(rule.needs) or "run.json alone"
    if rule.wants:
        tables += f"; {', '.join(rule.wants)} where the run has them"
    promise = "no promise" if rule.promise is None else rule.promise
    reach = " Unknown where the traces do not reach." if rule.reaches else ""
    of = f" Of the engines {' and '.join(rule.engines)} alone." if rule.engines else ""
    yield f"Promise: {promise}. Reads {tables}.{reach}{of} Source: {rule.source}."


if __name__ == "__main__":
    sys.stdout.write(rule_page())
