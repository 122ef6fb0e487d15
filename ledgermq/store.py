"""`ledgermq store check` and `store dump`: the contents of a stopped node's store.

Place in the data path: none; it reads a store's files (docs/FORMATS.md sections 1 to 4 and 8) and
prints what it finds, as a table or as JSON.

Invariants: nothing in the store is changed, not even what a start would repair; a running node's
store is refused. `check` reads every byte of the log. It ends with 0 if all is well, 1 if something
is damaged, 2 if it could not find out.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import typer
from msgspec import structs

from broker.entry.payload import PAYLOAD_HEADER, UNIT_SIZE, Command, PayloadError, decode_payload
from ledgermq.exit_codes import EXIT_FAIL, EXIT_OK
from raft.log.disk import OsDisk
from raft.log.hard_state import read_hard_state
from raft.log.log_format import CorruptLogError
from raft.log.log_survey import LogSurvey, StoredEntry
from raft.membership import MembershipError, decode_membership
from raft.messages import EntryKind, Index
from raft.snapshots.snapshot import verify as verify_snapshot
from raft.store.identity import IdentityFile
from raft.store.store_lock import StoreLockedError
from remoting.errors import RecordError
from remoting.records.message import scan_records

__all__ = ["NoStoreError", "check", "dump"]

_LOG = "commitlog"


class NoStoreError(Exception):
    """The directory is not a node's store."""


def check(store: Path, *, as_json: bool) -> int:
    """Print what the store holds and what of it is damaged; return the exit code.

    Raises NoStoreError, OSError (StoreLockedError among them) and CorruptLogError.
    """
    with _stopped(store):
        found = _survey(store)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for line in _check_lines(found):
            typer.echo(line)
    return EXIT_FAIL if found["problems"] else EXIT_OK


def dump(
    store: Path, *, as_json: bool, low: Index | None, high: Index | None, records: bool
) -> int:
    """Print the entries of [low, high], one a line; with `records` each message as well.

    Raises the errors of `check`.
    """
    with _stopped(store):
        log = LogSurvey(OsDisk(store), _LOG)
        code = EXIT_OK
        first = log.first_index if low is None else low
        last = log.last_index if high is None else high
        for stored in log.walk(first, last + 1):
            row: dict[str, Any]
            if isinstance(stored, StoredEntry):
                row = _entry_row(stored, records=records)
            else:
                row = {"index": stored, "damaged": True}
                code = EXIT_FAIL
            typer.echo(json.dumps(row) if as_json else "\n".join(_dump_lines(row)))
        return code


# Looking ---------------------------------------------------------------------------------------


def _survey(store: Path) -> dict[str, Any]:
    disk = OsDisk(store)
    problems: list[str] = []
    log = LogSurvey(disk, _LOG)
    damages = list(log.verify())
    problems += [f"{damage.path}: {damage}" for damage in damages]
    recovered = log.recovered
    report = recovered.report
    identity = _read_or_note(lambda: _identity(disk), problems)
    born = identity is not None and identity["born"]
    found: dict[str, Any] = {
        "store": str(store),
        "log": {
            "first_index": log.first_index,
            "last_index": log.last_index,
            "last_term": recovered.term_values[-1],
            "begin_position": recovered.base.position,
            "end_position": recovered.last.end_position,
            "durable_position": report.durable_position,
            "segments": report.segments,
            "segments_without_index": report.segments_scanned - 1,
            "configurations": list(recovered.config_indexes),
            "torn_bytes": report.torn_bytes,
            "torn_reason": report.torn_reason,
            "emptying": log.is_resetting,
        },
        "damages": [asdict(damage) for damage in damages],
        "hard_state": _read_or_note(
            lambda: structs.asdict(read_hard_state(disk, was_written=born)), problems
        ),
        "identity": identity,
        "checkpoint": _checkpoint(store),
        "snapshots": _snapshots(disk, store, problems),
    }
    # A log never holds an entry above the current term, so the hard state is older than the log.
    term = found["hard_state"] and found["hard_state"]["current_term"]
    if isinstance(term, int) and term < recovered.term_values[-1]:
        problems.append(f"hard_state: term {term}, the log has {recovered.term_values[-1]}")
    hint = found["checkpoint"]
    committed = hint.get("commit_index") if isinstance(hint, dict) else None
    if isinstance(committed, int) and committed > log.last_index:
        problems.append(
            f"checkpoint: entry {committed} was committed and durable here, the log ends at "
            f"{log.last_index}"
        )
    return found | {"problems": problems}


def _read_or_note(read: Callable[[], object], problems: list[str]) -> Any:
    """Return what `read` returns; None, and a problem in the list, if the file is damaged."""
    try:
        return read()
    except CorruptLogError as error:
        problems.append(str(error))
        return None


def _identity(disk: OsDisk) -> dict[str, Any] | None:
    identity = IdentityFile(disk).peek()
    if identity is None:
        return None
    roster = asdict(decode_membership(identity.roster)) if identity.roster else None
    return asdict(identity) | {"roster": roster}


def _checkpoint(store: Path) -> Any:
    """Return the content of the checkpoint, which is only a hint; None if it can't be read."""
    try:
        return json.loads((store / "checkpoint").read_text())
    except (OSError, ValueError):
        return None


def _snapshots(disk: OsDisk, store: Path, problems: list[str]) -> list[dict[str, Any]]:
    found = []
    for file in sorted((store / "snapshots").glob("*.snapshot")):
        path = f"snapshots/{file.name}"
        opened = disk.open(path, create=False)
        try:
            header = verify_snapshot(opened, path)
            found.append({"file": path, "index": header.last.index, "term": header.last.term})
        except CorruptLogError as error:
            problems.append(str(error))
        finally:
            opened.close()
    return found


def _entry_row(stored: StoredEntry, *, records: bool) -> dict[str, Any]:
    entry = stored.entry
    row: dict[str, Any] = {
        "index": entry.index,
        "term": entry.term,
        "kind": entry.kind.name.lower(),
        "position": stored.position,
        "size": stored.size,
        "chain": stored.chain,
    }
    if entry.kind is EntryKind.CONFIG:
        try:
            row["membership"] = asdict(decode_membership(entry.payload))
        except MembershipError as error:
            row["unreadable"] = str(error)
    if entry.kind is not EntryKind.DATA:
        return row
    try:
        payload = decode_payload(entry.payload)
        row |= {
            "store_timestamp_ms": payload.store_timestamp_ms,
            "runs": [
                {
                    "topic": run.topic,
                    "queue": run.queue_id,
                    "first_offset": run.first_queue_offset,
                    "count": len(run.units) // UNIT_SIZE,
                }
                for run in payload.runs
            ],
            "commands": [_shown(command) for command in payload.commands],
        }
        if records:
            row["records"] = list(_records(stored))
    except (PayloadError, RecordError) as error:
        row["unreadable"] = str(error)
    return row


def _shown(command: Command) -> dict[str, Any]:
    """Format a command without its secrets: a field that `repr` hides is shown as `...`."""
    name = type(command).__name__.removesuffix("Command").lower()
    hidden = {each.name: "..." for each in fields(command) if not each.repr}
    return {"command": name} | asdict(command) | hidden


def _records(stored: StoredEntry) -> Iterator[dict[str, Any]]:
    """Yield the messages of a data entry, in their order."""
    payload = stored.entry.payload
    start = PAYLOAD_HEADER.size + PAYLOAD_HEADER.unpack_from(payload)[3]
    for record in scan_records(payload[start:]):
        yield {
            "topic": record.topic.decode(errors="replace"),
            "queue": record.queue_id,
            "offset": record.queue_offset,
            "position": record.physical_offset,
            "size": record.size,
            "properties": record.properties.decode(errors="replace"),
            "body_size": record.body_size,
        }


@contextmanager
def _stopped(store: Path) -> Iterator[None]:
    """Hold the store's lock within the block, if the lock file exists."""
    if not (store / _LOG).is_dir():
        raise NoStoreError(f"{store} is no node's store: it has no {_LOG}")
    path = store / "lock"
    if not path.exists():
        yield
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLockedError(f"{store} is used by a running node") from error
        yield
    finally:
        os.close(fd)


# Printing --------------------------------------------------------------------------------------


def _check_lines(found: dict[str, Any]) -> Iterator[str]:
    log, state, identity = found["log"], found["hard_state"], found["identity"]
    yield f"store       {found['store']}"
    if identity is not None:
        yield f"identity    {identity}"
    if state is not None:
        yield f"hard state  term {state['current_term']}, vote {state['voted_for'] or 'none'}"
    yield (
        f"log         entries {log['first_index']}..{log['last_index']}, positions "
        f"{log['begin_position']}..{log['end_position']}, term {log['last_term']}, "
        f"{log['segments']} segments, durable up to {log['durable_position']}"
    )
    if log["emptying"]:
        yield "            it is being emptied for an installed snapshot"
    if log["segments_without_index"]:
        yield f"            {log['segments_without_index']} closed segments have no usable index"
    if log["torn_bytes"]:
        yield f"            {log['torn_bytes']} torn bytes behind the end: {log['torn_reason']}"
    if found["checkpoint"] is not None:
        yield f"checkpoint  {json.dumps(found['checkpoint'])}"
    for snapshot in found["snapshots"]:
        yield f"snapshot    {snapshot['file']}: up to entry {snapshot['index']}"
    for problem in found["problems"]:
        yield f"DAMAGED     {problem}"
    yield f"{len(found['problems'])} problems" if found["problems"] else "no damage"


def _dump_lines(row: dict[str, Any]) -> Iterator[str]:
    if "damaged" in row:
        yield f"{row['index']:>10}  DAMAGED"
        return
    parts = [f"{row['index']:>10}  term {row['term']}  {row['kind']:<6}  @{row['position']}"]
    parts.append(f"{row['size']} bytes  {row['chain']:08x}")
    for run in row.get("runs", ()):
        last = run["first_offset"] + run["count"] - 1
        parts.append(f"{run['topic']}/{run['queue']} {run['first_offset']}..{last}")
    parts += [json.dumps(command) for command in row.get("commands", ())]
    if "membership" in row:
        parts.append(json.dumps(row["membership"]))
    if "unreadable" in row:
        parts.append(f"UNREADABLE: {row['unreadable']}")
    yield "  ".join(parts)
    for record in row.get("records", ()):
        yield (
            f"{'':>12}{record['topic']}/{record['queue']} {record['offset']}  "
            f"@{record['position']}  {record['size']} bytes  "
            f"{record['properties'].replace(chr(1), '=').replace(chr(2), ' ').strip()}"
        )
