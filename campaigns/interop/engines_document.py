"""The section of docs/INTEROP.md about the engines `async` and `sync`, written from its figures.

    python -m campaigns.interop.engines_document figures/interop.json

Pure but for `main`. How many cases hold by engine, client and what becomes of the brokers; what a
case of `RoleCases.java` comes to on each engine; why what can't hold can't (`engine_limits.py`);
and each failure.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from campaigns.interop.engine_limits import IMPOSSIBLE, Limit, limit_of
from campaigns.interop.master_slave import GROUPS, KILL, MODES, ROLES
from campaigns.interop.matrix import Matrix, Outcome

__all__ = ["BEGIN", "END", "document_section", "updated"]

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "INTEROP.md"
BEGIN: Final = (
    "<!-- engines: python -m campaigns.interop.engines_document figures/interop.json -->\n"
)
END: Final = "<!-- end of engines -->\n"
_KINDS: Final[Mapping[str, str]] = {
    "": "steady",
    KILL: "master killed",
    ROLES: "roles",
    GROUPS: "RocketMQ's tests",
}
_WORDS: Final = {"pass": "holds", IMPOSSIBLE: "not possible", "skip": "left out"}


def document_section(matrix: Matrix) -> str:
    """Return the section's tables; of targets on these engines alone."""
    outcomes = [each for each in matrix.outcomes if each.target in MODES]
    left = [
        f"Not run: {each.client} on {each.target}: {each.why}.\n"
        for each in matrix.skipped
        if each.target in MODES
    ]
    parts = (_totals(outcomes), *left, _roles(outcomes), _reasons(outcomes), _failures(outcomes))
    return "\n".join(part for part in parts if part)


def _totals(outcomes: Sequence[Outcome]) -> str:
    counts: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for each in outcomes:
        mode = MODES[each.target]
        row = counts.setdefault((f"{mode.engine}, flush {mode.flush}", each.client), {})
        row.setdefault(mode.kind, Counter())[each.outcome] += 1
    rows = [
        [*key, *(_counted(counts[key].get(kind, Counter())) for kind in _KINDS)]
        for key in sorted(counts, key=lambda key: (key[0] != "sync, flush sync", key))
    ]
    return _table(["engine", "client", *_KINDS.values()], rows)


def _counted(counts: Counter[str]) -> str:
    """Return how many cells hold, and what becomes of the others."""
    if not counts:
        return ""
    others = counts.total() - counts["pass"] - counts[IMPOSSIBLE] - counts["skip"]
    parts = [
        f"{counts['pass']} hold",
        f"{counts[IMPOSSIBLE]} not possible" if counts[IMPOSSIBLE] else "",
        f"{counts['skip']} left out" if counts["skip"] else "",
        f"**{others} fail**" if others else "",
    ]
    return ", ".join(part for part in parts if part)


def _roles(outcomes: Sequence[Outcome]) -> str:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for each in outcomes:
        if MODES[each.target].kind == ROLES:
            cell = found.setdefault(each.case, {}).setdefault(each.target, {})
            cell[each.client] = _WORDS.get(each.outcome, "**fails**")
    targets = [name for name, mode in MODES.items() if mode.kind == ROLES]
    heads = [f"{MODES[name].engine}, flush {MODES[name].flush}" for name in targets]
    rows = [
        [case, *(_agreed(cells.get(target, {})) for target in targets)]
        for case, cells in found.items()
    ]
    return _table(["case", *heads], rows)


def _agreed(words: Mapping[str, str]) -> str:
    """Return what all clients came to; where they differ, each one's."""
    if len(set(words.values())) <= 1:
        return next(iter(words.values()), "")
    return ", ".join(f"{client}: {word}" for client, word in words.items())


def _reasons(outcomes: Iterable[Outcome]) -> str:
    limits: dict[Limit, None] = {}
    for each in outcomes:
        limit = limit_of(each.case, each.target)
        if limit is not None and each.outcome == IMPOSSIBLE:
            limits[limit] = None
    return _table(
        ["not possible", "where", "why"],
        [[limit.case, f"`{limit.target}`", limit.reason] for limit in limits],
    )


def _failures(outcomes: Iterable[Outcome]) -> str:
    rows = [
        [each.case, each.client, each.target, each.detail.replace("|", "\\|")[:300]]
        for each in outcomes
        if each.outcome in ("fail", "none")
    ]
    return _table(["fails", "client", "target", "what it said"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def updated(document: str, matrix: Matrix) -> str:
    """Return the document with the section between its marks as it is now. Raises ValueError."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    return f"{document[:begin]}{document_section(matrix)}{document[end:]}"


def main() -> None:
    matrix = Matrix.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    text = updated(DOCUMENT.read_text(encoding="utf-8"), matrix)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
