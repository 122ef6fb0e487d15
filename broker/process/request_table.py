"""Every request that a broker serves: the rows of all rooms, and the dispatch made of them.

Place in the data path: `broker.process.server` builds its dispatch from `SERVED`. The tables of
requests in docs/DIVERGENCE.md are generated from it: `python -m broker.process.request_table`
prints them, with the path of that file it updates them there. Requests that are served elsewhere or
not at all are listed in `broker.process.not_served`.

Invariants (tests/broker/test_request_table.py): a code stands in one row, or is not served for a
reason, or goes to somebody else; every handler is there; a request without a field that is marked
as required is refused by that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final

from broker.access.rows import ROWS as ACCESS_ROWS
from broker.admin.rows import ROWS as ADMIN_ROWS
from broker.delay.rows import ROWS as DELAY_ROWS
from broker.groups.rows import ROWS as GROUP_ROWS
from broker.index.rows import ROWS as INDEX_ROWS
from broker.pop.rows import ROWS as POP_ROWS
from broker.process.not_served import NOT_SERVED
from broker.process.processors import Processors
from broker.pull.rows import ROWS as PULL_ROWS
from broker.request.request import Request
from broker.request.row import Row, bound
from broker.send.rows import ROWS as SEND_ROWS
from broker.transaction.rows import ROWS as TRANSACTION_ROWS

__all__ = ["OPERATORS", "ROW_OF", "SERVED", "dispatch_of", "tables", "updated"]

_BEGIN_MARK: Final = (
    "<!-- requests: python -m broker.process.request_table docs/DIVERGENCE.md -->\n"
)
_END_MARK: Final = "<!-- end of requests -->"

SERVED: Final[tuple[Row, ...]] = (
    *SEND_ROWS,
    *TRANSACTION_ROWS,
    *DELAY_ROWS,
    *PULL_ROWS,
    *INDEX_ROWS,
    *POP_ROWS,
    *GROUP_ROWS,
    *ADMIN_ROWS,
    *ACCESS_ROWS,
)
ROW_OF: Final[Mapping[int, Row]] = {int(row.code): row for row in SERVED}
OPERATORS: Final = frozenset(row.code for row in SERVED if row.by_operators)
"""What operators' tools and the members of a group request, and clients at work do not."""


def dispatch_of(processors: Processors) -> dict[int, Callable[[Request], None]]:
    """Return the handler of each code, for `broker.process.server`."""
    return {
        int(row.code): bound(row, attrgetter(row.handler)(processors), processors.leadership)
        for row in SERVED
    }


def tables() -> str:
    """Return the tables of docs/DIVERGENCE.md, as Markdown."""
    lines = ["| code | request | fields, * required | answer | body |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.code:d} | {row.name} | {_described(row)} | {', '.join(row.answer.split())} "
        f"| {row.body} |"
        for row in sorted(SERVED, key=lambda row: row.code)
    ]
    lines += ["", "| requests that are not served | why |", "|---|---|"]
    of_reason: dict[str, list[str]] = {}
    for code, reason in sorted(NOT_SERVED.items()):
        of_reason.setdefault(reason, []).append(f"{code.name} ({code:d})")
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in sorted(of_reason.items())]
    return "\n".join(lines) + "\n"


def updated(document: str) -> str:
    """Return the document with the current tables between its marks. Raises ValueError."""
    begin, end = document.index(_BEGIN_MARK) + len(_BEGIN_MARK), document.index(_END_MARK)
    return f"{document[:begin]}{tables()}{document[end:]}"


def _described(row: Row) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'*' if field.required else ''}" for field in row.header_fields()
    )


def _main(arguments: list[str]) -> None:
    if not arguments:
        sys.stdout.write(tables())
    for path in map(Path, arguments):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
