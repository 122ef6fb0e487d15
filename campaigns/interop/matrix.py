"""What the cases came to: the table case x client x target, and its figures.

Pure: a program's lines go in, texts and JSON values come out. An outcome is "pass", "fail",
"skip" (the case does not apply there, with the reason) or "none" (the program ended without it,
which counts as a failure).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

__all__ = [
    "MARK",
    "Matrix",
    "MidpointReached",
    "Outcome",
    "RequestedAction",
    "Skipped",
    "parse_line",
]

MARK = "@@"  # begins the lines in which programs report something
_SIGNS = {"impossible": "no", "pass": "ok", "fail": "FAIL", "skip": "-", "none": "NONE"}
_DETAIL_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one case ended."""

    case: str
    client: str
    target: str
    outcome: str
    took_ms: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MidpointReached:
    """The cases that run wait for something to be broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAction:
    """A case wants something to be done to the brokers."""

    what: str


def parse_line(
    line: str, client: str, target: str
) -> Outcome | MidpointReached | RequestedAction | None:
    """What a line of a program reports; None where it is no such line."""
    if not line.startswith(MARK):
        return None
    fields = json.loads(line.removeprefix(MARK))
    if fields.get("event") == "midpoint":
        return MidpointReached()
    if fields.get("event") == "ask":
        return RequestedAction(what=fields["what"])
    return Outcome(
        case=fields["case"],
        client=client,
        target=target,
        outcome=fields["outcome"],
        took_ms=int(fields["took_ms"]),
        detail=fields["detail"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A client, or all of them, that could not be tried on a target."""

    client: str  # "all" where the target itself could not be had
    target: str
    why: str


class Matrix:
    """All outcomes of a run, and what could not be run at all."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.skipped: list[Skipped] = []

    @classmethod
    def from_json(cls, text: str) -> Matrix:
        document = json.loads(text)
        matrix = cls()
        matrix.add(Outcome(**each) for each in document["outcomes"])
        matrix.skipped = [Skipped(**each) for each in document["skipped"]]
        return matrix

    def add(self, outcomes: Iterable[Outcome]) -> None:
        self.outcomes.extend(outcomes)

    def skip(self, client: str, target: str, why: str) -> None:
        self.skipped.append(Skipped(client=client, target=target, why=why))

    def merged_into(self, earlier: Matrix) -> Matrix:
        """What is known after both runs: of a cell that both tried, this one's outcome."""
        cells = {(each.case, each.client, each.target) for each in self.outcomes}
        pairs = {(client, target) for _, client, target in cells}
        pairs |= {(each.client, each.target) for each in self.skipped}
        merged = Matrix()
        merged.add(
            each for each in earlier.outcomes if (each.case, each.client, each.target) not in cells
        )
        merged.add(self.outcomes)
        merged.skipped = [
            each for each in earlier.skipped if (each.client, each.target) not in pairs
        ]
        merged.skipped += self.skipped
        return merged

    @property
    def red(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.outcome in {"fail", "none"}]

    def totals(self) -> dict[str, Counter[str]]:
        """By "client target"."""
        totals: dict[str, Counter[str]] = {}
        for each in self.outcomes:
            totals.setdefault(f"{each.client} {each.target}", Counter())[each.outcome] += 1
        return totals

    def table(self) -> str:
        """A line per case, a column per client and target; what is red is listed below."""
        columns = list(dict.fromkeys((each.client, each.target) for each in self.outcomes))
        cases = list(dict.fromkeys(each.case for each in self.outcomes))
        found = {(each.case, each.client, each.target): each for each in self.outcomes}
        rows = [["case", *(client for client, _ in columns)], ["", *(name for _, name in columns)]]
        for case in cases:
            cells = [found.get((case, client, name)) for client, name in columns]
            signs = ["" if each is None else _SIGNS[each.outcome] for each in cells]
            rows.append([case, *signs])
        lines = _aligned(rows)
        for name, counts in self.totals().items():
            counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            lines.append(f"{name}: {counted}")
        for each in self.red:
            where = f"{each.case} of {each.client} on {each.target}"
            lines.append(f"{_SIGNS[each.outcome]} {where}: {each.detail[:_DETAIL_CHARS]}")
        lines += [f"not run: {each.client} on {each.target}: {each.why}" for each in self.skipped]
        return "\n".join(lines)

    def to_json(self) -> str:
        return json.dumps(
            {
                "totals": {name: dict(counts) for name, counts in self.totals().items()},
                "skipped": [asdict(each) for each in self.skipped],
                "outcomes": [asdict(each) for each in self.outcomes],
            },
            indent=1,
            ensure_ascii=False,
        )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
