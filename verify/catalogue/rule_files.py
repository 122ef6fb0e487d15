"""Rules and stages as files: a header of comments that describes the query, then one query.

Place in the data path: `verify.judge` reads them once per verification; engines get their text.
A *rule* yields one row per finding. A *stage* is a table that rules share, computed once per run;
one with a line `-- kept: no` need not be stored, one with `-- kept: of small runs` not on a large
run, one with `-- parts: COLUMN` or `-- small parts: COLUMN` may be made part by part.

    -- A4: lost write
    -- promise: G1
    -- needs: ops
    -- wants: log
    -- examined: select count(*) from ...
    -- nothing: no operation read anything
    -- holds: What a reader learns where nothing is found.
    -- rule: One sentence, which may go on
    --   in lines that are indented.
    -- source: where it comes from
    select ...

Invariants: a file that lacks a key, has an unknown key, or is not named after its rule is an error
that names the file; no query is executed before all files have been read.

Source: docs/RULE_SQL.md describes header and subset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "BUILT_IN_RULES",
    "BUILT_IN_STAGES",
    "Rule",
    "RuleFileError",
    "Stage",
    "read_rules",
    "read_stages",
]

BUILT_IN_RULES: Final = Path(__file__).parent.parent / "rules"
BUILT_IN_STAGES: Final = Path(__file__).parent.parent / "stages"
PROMISES: Final = frozenset(f"G{number}" for number in range(1, 9))
TABLES: Final = frozenset({"ops", "faults", "raft", "log", "cq"})
_FILE_SIZE_BYTES_MAX: Final = 256 * 1024
_FAMILIES: Final = "ASTRDPCM"  # the order of families in a verdict; others follow
_TITLE: Final = re.compile(r"-- (?P<id>[A-Z]{1,8}[0-9]{1,4}): (?P<name>.+)")
_ENTRY: Final = re.compile(r"-- (?P<key>[a-z_]+):(?: (?P<text>.*))?")
_MORE: Final = "--   "
_REQUIRED: Final = frozenset({"promise", "needs", "examined", "nothing", "holds", "rule", "source"})
_OPTIONAL: Final = frozenset({"wants", "applies", "engines", "listed", "reaches"})
_NOT_STORED: Final = "-- kept: no"
_STORED_IF_SMALL: Final = "-- kept: of small runs"
_PARTED_BY: Final = re.compile(r"-- (small )?parts: ([a-z_]+)")
_TRUTHS: Final = {"yes": True, "no": False}
_ALWAYS: Final = "select true"


class RuleFileError(Exception):
    """A file of rules or stages can't be used; the message names the file and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A table that rules share. `text` is one query in Spark's SQL. If it is not stored, its
    rows are not worth the memory: an engine may run the query again for each reader.
    `is_stored_large`: likewise, of a run whose stages may not fit together.

    `parted_by`: a column of the result by which its query groups. The rows of some of its values
    come of no others, so that an engine may make a large stage in parts. `has_small_parts`: its
    query holds rows, as windows do, and not one row a group, so that a part should be smaller.
    """

    name: str
    is_stored: bool = True
    is_stored_large: bool = True
    parted_by: str | None = None
    has_small_parts: bool = False
    about: str
    text: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the catalogue.

    `needs`: tables without which the rule can't be judged. `wants`: tables that it reads where the
    run has them. `engines`: those of our own that the rule is about; none: it is about any run.
    `applies`: a query for one boolean, whether the rule's feature was on and used.
    `listed`: a query that is false if the rule is to be listed only when unknown. `examined`: a
    query for the number of rows that the rule examines; 0 makes the rule unknown, with `nothing` as
    the reason. These queries see the stages of counts and the manifest's tables only. `holds` says
    what is true where the rule passes, `rule` what a violation is. `reaches`: the rule's statement
    holds only if the traces reach everything that the logs have committed. `text` yields the
    findings: plain columns in their order of rank, and `reason`, which says why a row is a doubt
    and not a violation.
    """

    id: str
    name: str
    promise: str | None
    needs: tuple[str, ...]
    wants: tuple[str, ...]
    applies: str
    engines: tuple[str, ...] = ()
    listed: str = _ALWAYS
    examined: str
    nothing: str
    holds: str
    reaches: bool = False
    rule: str
    source: str
    text: str
    path: Path


def read_rules(*folders: Path) -> tuple[Rule, ...]:
    """Read all rules of `folders`, sorted by family and number.

    Raises:
        RuleFileError: a file is not a rule, or two have one id.
    """
    rules: dict[str, Rule] = {}
    for path in _files(folders):
        rule = _rule(path)
        if rule.id in rules:
            raise RuleFileError(f"{path} has the id of {rules[rule.id].path}")
        rules[rule.id] = rule
    return tuple(sorted(rules.values(), key=_order))


def read_stages(*folders: Path) -> Mapping[str, Stage]:
    """Read all stages of `folders`, by name.

    Raises:
        RuleFileError: a file is not a stage, or two have one name.
    """
    stages: dict[str, Stage] = {}
    for path in _files(folders):
        if path.stem in stages:
            raise RuleFileError(f"{path} has the name of {stages[path.stem].path}")
        header, text = _split(path)
        is_stored = _NOT_STORED not in header
        parts = next(filter(None, map(_PARTED_BY.fullmatch, header)), None)
        about = " ".join(
            line.removeprefix("--").strip()
            for line in header
            if line not in {_NOT_STORED, _STORED_IF_SMALL} and not _PARTED_BY.fullmatch(line)
        )
        if not about:
            raise RuleFileError(f"{path} does not say what it holds")
        stages[path.stem] = Stage(
            name=path.stem,
            about=about,
            text=text,
            path=path,
            is_stored=is_stored,
            is_stored_large=is_stored and _STORED_IF_SMALL not in header,
            parted_by=parts and parts[2],
            has_small_parts=bool(parts and parts[1]),
        )
    return stages


def _files(folders: Iterable[Path]) -> Iterable[Path]:
    for folder in folders:
        if not folder.is_dir():
            raise RuleFileError(f"{folder} is no directory of rules")
        yield from sorted(folder.glob("*.sql"))


def _split(path: Path) -> tuple[list[str], str]:
    """Split a file into the header's lines and the query after them."""
    try:
        if path.stat().st_size > _FILE_SIZE_BYTES_MAX:
            raise RuleFileError(f"{path} is larger than {_FILE_SIZE_BYTES_MAX} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise RuleFileError(f"{path} can't be read: {error}") from error
    header: list[str] = []
    for line in lines:
        if not line.startswith("--"):
            break
        header.append(line)
    text = "\n".join(lines[len(header) :]).strip()
    if not text:
        raise RuleFileError(f"{path} has no query")
    return header, text


def _rule(path: Path) -> Rule:
    header, text = _split(path)
    title = _TITLE.fullmatch(header[0]) if header else None
    if title is None:
        raise RuleFileError(f"{path} does not begin with '-- ID: name'")
    if title["id"] != path.stem:
        raise RuleFileError(f"{path} is not named after its rule, {title['id']}")
    entries = _entries(path, header[1:])
    promise = entries["promise"]
    if promise != "none" and promise not in PROMISES:
        raise RuleFileError(f"{path}: promise {promise!r} is none of {', '.join(sorted(PROMISES))}")
    return Rule(
        id=title["id"],
        name=title["name"],
        promise=None if promise == "none" else promise,
        needs=_table_names(path, entries["needs"]),
        wants=_table_names(path, entries.get("wants", "")),
        applies=entries.get("applies", _ALWAYS),
        engines=_names(entries.get("engines", "")),
        listed=entries.get("listed", _ALWAYS),
        examined=entries["examined"],
        nothing=entries["nothing"],
        holds=entries["holds"],
        reaches=_truth(path, "reaches", entries.get("reaches", "no")),
        rule=entries["rule"],
        source=entries["source"],
        text=text,
        path=path,
    )


def _entries(path: Path, header: Iterable[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    key = ""
    for line in header:
        if key and line.startswith(_MORE):
            entries[key] = f"{entries[key]} {line.removeprefix(_MORE).strip()}".strip()
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise RuleFileError(f"{path}: the header has the line {line!r}")
        key = entry["key"]
        if key not in _REQUIRED | _OPTIONAL:
            raise RuleFileError(f"{path}: the header has the key {key!r}")
        if key in entries:
            raise RuleFileError(f"{path}: the header has {key!r} twice")
        entries[key] = (entry["text"] or "").strip()
    missing = sorted(_REQUIRED - {key for key, text in entries.items() if text})
    if missing:
        raise RuleFileError(f"{path}: the header lacks {', '.join(missing)}")
    return entries


def _truth(path: Path, key: str, text: str) -> bool:
    if text not in _TRUTHS:
        raise RuleFileError(f"{path}: {key} is {text!r}, neither yes nor no")
    return _TRUTHS[text]


def _table_names(path: Path, text: str) -> tuple[str, ...]:
    names = _names(text)
    unknown = sorted(set(names) - TABLES)
    if unknown:
        raise RuleFileError(f"{path}: {unknown[0]!r} is no table of the format")
    return names


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip() not in {"", "none"})


def _order(rule: Rule) -> tuple[int, str, int]:
    family = rule.id.rstrip("0123456789")
    place = _FAMILIES.find(family) if len(family) == 1 else -1
    return (place if place >= 0 else len(_FAMILIES), family, int(rule.id[len(family) :]))
