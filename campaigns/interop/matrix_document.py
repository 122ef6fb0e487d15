"""The matrix as a table of docs/INTEROP.md, written from its figures.

    python -m campaigns.interop.matrix_document figures/interop.json

Pure but for `main`. A line per case, a column per client; a cell names the targets where the case
holds, in bold those where it doesn't, in brackets those where it has nothing to show. Which cases
there are is read from the programs' sources, so that a table that lacks one, or tells of one that
is gone, fails a test on machines without Java and Go.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from campaigns.interop.master_slave import MODES
from campaigns.interop.matrix import Matrix, Outcome
from campaigns.interop.python_cases import CASES
from campaigns.interop.run import CLIENTS, GRPC, SUITE
from campaigns.interop.security import SECURED_CASES
from campaigns.interop.targets import TARGETS

__all__ = [
    "BEGIN",
    "END",
    "document_cases",
    "document_table",
    "role_cases",
    "source_cases",
    "updated",
]

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "INTEROP.md"
BEGIN = "<!-- matrix: python -m campaigns.interop.matrix_document figures/interop.json -->\n"
END = "<!-- end of matrix -->\n"
_SHORT = {"ledgermq": "", "rocketmq": "R"}


@functools.cache
def source_cases() -> dict[str, tuple[str, ...]]:
    """The cases of every client, as its sources name them, in their order."""
    cases = {
        f"java-{version}": _named(r'all\.add\(\s*"([^"]+)"', f"java/src/{folder}/**/*.java")
        for version, folder in (("5.5.0", "client5"), ("5.3.3", "client5"), ("4.9.8", "client4"))
    }
    roles = role_cases()
    shared = [
        name
        for name in _named(r'all\.add\(\s*"([^"]+)"', "java/src/main/**/*.java")
        if name not in roles
    ]
    return {
        **{client: (*shared, *own, *SECURED_CASES) for client, own in cases.items()},
        # It speaks no TLS, so it is never refused for speaking plain text.
        "go-2.1.2": (
            *_named(r'\n\t\t\{"([^"]+)", ', "go/cases.go"),
            *(case for case in SECURED_CASES if case != "secured-plain-text"),
        ),
        "python": (*(f"python-{name}" for name in CASES), *SECURED_CASES),
        GRPC: _named(r'all\.add\(\s*"([^"]+)"', "java/src/grpc/**/*.java"),
        SUITE: _named(r'\n +"([\w.]+IT)"', "suite/**/Suite.java"),
    }


def role_cases() -> tuple[str, ...]:
    """The cases that say themselves what happens to the brokers (`engines_document`)."""
    return _named(r'all\.add\(\s*"([^"]+)"', "java/src/main/java/interop/RoleCases.java")


def _named(pattern: str, files: str) -> tuple[str, ...]:
    texts = (path.read_text(encoding="utf-8") for path in sorted(HERE.glob(files)))
    return tuple(name for text in texts for name in re.findall(pattern, text))


def _label(target: str) -> str:
    """`1`, `3`, `kill` and the like of ours; `R`, `R-acl`, `R-tls` of RocketMQ."""
    project, _, what = target.partition("-")
    return "-".join(part for part in (_SHORT[project], what) if part)


def _place(outcome: Outcome) -> tuple[bool, int, int, int]:
    """As the sources have the cases; accounts, which all clients share, come last."""
    client, target = outcome.client, outcome.target
    cases = source_cases().get(client, ())
    return (
        outcome.case in SECURED_CASES,
        CLIENTS.index(client) if client in CLIENTS else len(CLIENTS),
        cases.index(outcome.case) if outcome.case in cases else len(cases),
        TARGETS.index(target),
    )


def _column(outcome: Outcome) -> tuple[int, int]:
    return TARGETS.index(outcome.target), _place(outcome)[1]


def document_table(matrix: Matrix) -> str:
    others = Matrix()  # of the engines async and sync `engines_document` tells
    others.add(each for each in matrix.outcomes if each.target not in MODES)
    others.skipped = [each for each in matrix.skipped if each.target not in MODES]
    matrix, outcomes = others, sorted(others.outcomes, key=_place)
    clients = list(dict.fromkeys(each.client for each in outcomes))
    cases = list(dict.fromkeys(each.case.removeprefix("python-") for each in outcomes))
    cells: dict[tuple[str, str], list[str]] = {}
    for each in outcomes:
        label = _label(each.target)
        text = {"pass": label, "skip": f"({label})"}.get(each.outcome, f"**{label}**")
        cells.setdefault((each.case.removeprefix("python-"), each.client), []).append(text)
    held = sum(each.outcome == "pass" for each in matrix.outcomes)
    lines = [f"{len(matrix.outcomes)} cells, {held} hold.", ""]
    lines += [*_row(["client", "target", "cells", "hold"]), "|---|---|---|---|"]
    totals = {f"{each.client} {each.target}": None for each in sorted(outcomes, key=_column)}
    for name in totals:
        counts = matrix.totals()[name]
        client, _, target = name.partition(" ")
        lines += _row([client, target, str(counts.total()), str(counts["pass"])])
    lines += [f"\nNot run: {each.client} on {each.target}: {each.why}." for each in matrix.skipped]
    lines += ["", *_row(["case", *clients]), "|" + "---|" * (len(clients) + 1)]
    for case in cases:
        lines += _row([case, *(" ".join(cells.get((case, client), [])) for client in clients)])
    return "\n".join(lines) + "\n"


def _row(values: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(values) + " |"]


def updated(document: str, matrix: Matrix) -> str:
    """The document with the table between its marks as it is now. Raises ValueError."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    return f"{document[:begin]}{document_table(matrix)}{document[end:]}"


def document_cases(document: str) -> dict[str, list[str]]:
    """The cases that the document's table tells of, by client."""
    lines = document[document.index(BEGIN) : document.index(END)].splitlines()
    (head,) = (at for at, line in enumerate(lines) if line.startswith("| case |"))
    clients = _values(lines[head])[1:]
    by_client: dict[str, list[str]] = {client: [] for client in clients}
    for case, *cells in map(_values, lines[head + 2 :]):
        for client, cell in zip(clients, cells, strict=True):
            if cell:
                by_client[client].append(case)
    return by_client


def _values(row: str) -> list[str]:
    return [value.strip() for value in row.split("|")[1:-1]]


def main() -> None:
    matrix = Matrix.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    text = updated(DOCUMENT.read_text(encoding="utf-8"), matrix)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
