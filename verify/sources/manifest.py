"""run.json: its contents, and the check that the files on disk are the ones it lists.

Place in the data path: first of all. `load_manifest` parses and validates; `damage` compares every
listed file with its row count and digest, and searches for parts of stores that are not listed. A
failure of either makes the whole run unknown: a damaged run proves nothing.

The location of the files is left to `verify.sources.run_files`.

Invariants: only listed files are ever read, only below the run directory, and only if they are
plain files: nothing here waits for a pipe. Numbers fit the columns that they become.

Source: docs/RUN_FORMAT.md, `run.json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa

from verify.sources.run_files import RunFileError, RunFiles

__all__ = [
    "OWN_SYSTEM",
    "ConsumerGroup",
    "ListedFile",
    "Manifest",
    "ManifestError",
    "Queue",
    "damage",
    "load_manifest",
]

FORMAT = 1
OWN_SYSTEM = "ledgermq"
_MANIFEST_SIZE_BYTES_MAX = 64 * 1024 * 1024
_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1
_NUMBER_MAX = 1e12  # milliseconds of 31 years, which still fit an int64 in nanoseconds
_PATTERN = frozenset("*?[]{}\\")
_PARTS_OF_STORES = ("commitlog", "consumequeue")
_MASTER_SLAVE = frozenset({"async", "sync"})
_FLUSHES = frozenset({"async", "sync"})
_OF_TRANSACTIONS = ("timeout_ms", "check_interval_ms", "check_max")
_OF_DELAYS = ("early_ms", "recall_ms", "lost_ms")


class ManifestError(Exception):
    """The run can't be judged; the message says what is wrong with its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One listed file. `rows` is None if it is not Parquet and run.json gives no count."""

    name: str
    rows: int | None
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue as read after the heal: [min_offset, max_offset) was there.

    `drained` is false if the manifest omits it: only user topics need to be drained.
    """

    broker_group: str
    topic: str
    queue: int
    min_offset: int
    max_offset: int
    drained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    name: str
    kind: str
    at_least_once: bool
    ordered: bool
    rebalance_ms: float = 25_000  # for how long two members may hold one queue after a change
    topics: tuple[str, ...] | None = None  # None: all user topics
    exclusive: bool = False  # a queue is consumed under a lock, by one member at a time
    redelivery_ms: float = 10_000  # how long after its time a popped message may take to come again
    retries_max: int | None = None  # redeliveries before the dead-letter topic; None: not told
    retry_delay_ms: float | None = None  # after which a refused message comes again at the earliest
    lease_ms: float = 60_000.0  # for which brokers keep a queue's lock after its last renewal
    wake_ms: float | None = None  # within which a held poll or pop is answered once a message came
    progress_ms: float | None = None  # within which a broadcast member has stored its progress
    tags: tuple[str, ...] | None = None  # those whose messages it is to get; None: all messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The values of run.json that the checks need; `raw` is all of it, for reports."""

    system: str
    engine: str  # the replication engine; "raft" if run.json omits it
    phases: Mapping[str, tuple[int, int]]  # nanoseconds since the run's start
    groups: Mapping[str, tuple[str, ...]]
    queues: tuple[Queue, ...]
    consumer_groups: tuple[ConsumerGroup, ...]
    transactions: Mapping[str, float] | None
    delays: Mapping[str, float] | None  # None: no delayed messages, or nothing told of them
    dedupe: bool
    limits: Mapping[str, float] | None
    tables: Mapping[str, tuple[ListedFile, ...]]
    left_behind: tuple[tuple[str, str], ...] | None  # (group, node); None: not recorded
    dedupe_window_ms: float | None = None  # null if `dedupe` is off or has no window
    route_expire_ms: float | None = None  # how long a wrong route may stay; null: not told
    route_gone_ms: float | None = None  # how long a broker that has ended may; null: not told
    clock_error_ns: int = 0  # between the clocks of the run's hosts
    flush: str | None = None  # of a master: whether answers wait for an fsync; None: not told
    in_sync_replicas: int = 2  # how many nodes the engine sync waits for, the master among them
    raw: Mapping[str, object]

    @property
    def is_master_slave(self) -> bool:
        """Whether the run is of our own system with a configured master and its slaves."""
        return self.system == OWN_SYSTEM and self.engine in _MASTER_SLAVE

    def rows(self) -> int:
        """Return the number of rows of all tables together, according to the manifest."""
        return sum(file.rows or 0 for files in self.tables.values() for file in files)


def load_manifest(files: RunFiles) -> Manifest:
    """Load the manifest of the run that has `files`.

    Raises:
        ManifestError: it is missing, unreadable, of another format, incomplete, or not valid.
    """
    try:
        text = files.text("run.json", size_bytes_max=_MANIFEST_SIZE_BYTES_MAX)
        raw = json.loads(text, parse_constant=_no_number)
        json.dumps(raw, ensure_ascii=False).encode()  # refuses lone surrogates
    except RunFileError as error:
        raise ManifestError(f"run.json {error}") from error
    except FileNotFoundError:
        raise ManifestError("there is no run.json: the run did not end") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"run.json can't be read: {error}") from error
    if not isinstance(raw, dict):
        raise ManifestError("run.json is not a JSON object")
    if raw.get("format") != FORMAT:
        raise ManifestError(f"run.json has format {raw.get('format')!r}, this verifier reads 1")
    if raw.get("complete") is not True:
        raise ManifestError("run.json says that the run is not complete")
    return _parse(raw)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def damage(files: RunFiles, manifest: Manifest) -> str | None:
    """Return why the listed files are not those that the run wrote; None if all are as listed."""
    for table, listed in manifest.tables.items():
        for file in listed:
            reason = _file_damage(files, table, file)
            if reason is not None:
                return f"table {table}: {reason}"
    unlisted = _unlisted_of_stores(files, {file.name for file in manifest.tables.get("nodes", ())})
    if unlisted is not None:
        return f"table nodes: {unlisted} lies in a store of the run and is not listed"
    return None


def _unlisted_of_stores(files: RunFiles, listed: Collection[str]) -> str | None:
    """Return a log or ConsumeQueue file of a listed store that the manifest omits.

    If stores are read, its entries would be missed and reported as lost; if `log` and `cq` are
    listed, they may have been made without it.
    """
    folders = {
        PurePosixPath(*parts[:3], part)
        for parts in (PurePosixPath(name).parts for name in listed)
        if len(parts) > 3 and parts[0] == "nodes"
        for part in (*_PARTS_OF_STORES, *_log_below(parts[3]))
    }
    for folder in sorted(folders):
        for path in sorted(map(PurePosixPath, files.below(str(folder)))):
            if path.name.isdecimal() and str(path) not in listed:
                return str(path)
    return None


def _log_below(folder: str) -> tuple[str, ...]:
    """Return the folder of the log of a store that has it below another: of our own masters and
    slaves, and of RocketMQ's brokers that replicate by DLedger."""
    if folder == "ha":
        return ("ha/commitlog",)
    return (f"{folder}/data",) if folder.startswith("dledger-") else ()


def _file_damage(files: RunFiles, table: str, file: ListedFile) -> str | None:
    try:
        sha256 = files.sha256(file.name)
    except RunFileError as error:
        return f"{file.name} {error}"
    except OSError as error:
        return f"{file.name} can't be read: {error.strerror}"
    if sha256 != file.sha256:
        return f"{file.name} is not the file that was listed: its sha256 differs"
    if table == "nodes":
        return None
    try:
        rows = files.footer(file.name).num_rows
    except (pa.ArrowException, OSError) as error:
        return f"{file.name} is not readable Parquet: {error}"
    if rows != file.rows:
        return f"{file.name} has {rows} rows, {file.rows} are listed"
    return None


class _Reader:
    """Typed access to one JSON object; errors name the path of the key."""

    __slots__ = ("_object", "_path")

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"{path} in run.json is not an object")
        self._object = value
        self._path = path

    def raw(self, key: str) -> object:
        if key not in self._object:
            raise ManifestError(f"{self._path}.{key} is missing in run.json")
        return self._object[key]

    def optional(self, key: str) -> object:
        return self._object.get(key)

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str):
            raise ManifestError(f"{self._path}.{key} in run.json is not a string")
        return value

    def integer(self, key: str) -> int:
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ManifestError(f"{self._path}.{key} in run.json is not an integer")
        if abs(value) > _INT64_MAX:
            raise ManifestError(f"{self._path}.{key} in run.json does not fit 64 bits")
        return value

    def optional_integer(self, key: str) -> int | None:
        return self.integer(key) if self._object.get(key) is not None else None

    def optional_number(self, key: str, default: float) -> float:
        return _number(self._object.get(key, default), f"{self._path}.{key}")

    def number_or_none(self, key: str) -> float | None:
        return self.optional_number(key, 0) if self._object.get(key) is not None else None

    def flag(self, key: str) -> bool:
        value = self.raw(key)
        if not isinstance(value, bool):
            raise ManifestError(f"{self._path}.{key} in run.json is not true or false")
        return value

    def optional_flag(self, key: str) -> bool:
        """Return a boolean; false if the key is missing or null."""
        return self._object.get(key) is not None and self.flag(key)

    def optional_texts(self, key: str) -> tuple[str, ...] | None:
        value = self._object.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ManifestError(f"{self._path}.{key} in run.json is not a list of names")
        return tuple(value)

    def items(self, key: str) -> list[object]:
        value = self.raw(key)
        if not isinstance(value, list):
            raise ManifestError(f"{self._path}.{key} in run.json is not a list")
        return value

    def members(self, key: str) -> dict[str, object]:
        value = self.raw(key)
        if not isinstance(value, dict):
            raise ManifestError(f"{self._path}.{key} in run.json is not an object")
        return value


def _parse(raw: dict[str, object]) -> Manifest:
    root = _Reader(raw, "run")
    limits = root.raw("limits")
    return Manifest(
        system=root.text("system"),
        engine="raft" if root.optional("engine") is None else root.text("engine"),
        phases=_phases(root),
        groups={name: _strings(name, voters) for name, voters in root.members("groups").items()},
        queues=_queues(root),
        consumer_groups=tuple(
            _consumer_group(name, value) for name, value in root.members("consumer_groups").items()
        ),
        transactions=_transactions(root),
        delays=_delays(root),
        dedupe=root.raw("dedupe") is not None,
        limits=None if limits is None else _numbers(limits, "run.limits"),
        left_behind=None if root.optional("left_behind") is None else _left_behind(root),
        dedupe_window_ms=_dedupe_window_ms(root),
        route_expire_ms=_of_routes(raw.get("routes"), "expire_ms"),
        route_gone_ms=_of_routes(raw.get("routes"), "gone_ms"),
        clock_error_ns=root.optional_integer("clock_error_ns") or 0,
        flush=_flush(root),
        in_sync_replicas=root.optional_integer("in_sync_replicas") or 2,
        tables={name: _files(name, value) for name, value in root.members("tables").items()},
        raw=raw,
    )


def _flush(root: _Reader) -> str | None:
    value = root.optional("flush")
    if value is not None and value not in _FLUSHES:
        raise ManifestError(f"run.flush in run.json is {value!r}, neither async nor sync")
    return None if value is None else str(value)


def _phases(root: _Reader) -> dict[str, tuple[int, int]]:
    phases: dict[str, tuple[int, int]] = {}
    for name, value in root.members("phases").items():
        if value is None:
            continue
        if (
            not isinstance(value, list)
            or len(value) != 2
            or not all(isinstance(bound, int) and not isinstance(bound, bool) for bound in value)
            or not all(abs(bound) <= _INT64_MAX for bound in value)
        ):
            raise ManifestError(f"run.phases.{name} in run.json is not [from, to]")
        phases[name] = (value[0], value[1])
    return phases


def _transactions(root: _Reader) -> dict[str, float] | None:
    """Return all three numbers, which rules on check-backs need; None: transactions off."""
    value = root.raw("transactions")
    if value is None:
        return None
    numbers = _numbers(value, "run.transactions")
    for name in _OF_TRANSACTIONS:
        if numbers.get(name, -1) < 0:
            raise ManifestError(f"run.transactions.{name} in run.json is no number from 0 on")
    return numbers


def _delays(root: _Reader) -> dict[str, float] | None:
    """Return all three numbers, which rules on delayed messages need; None: they are left out."""
    value = root.optional("delays")
    if value is None:
        return None
    numbers = _numbers(value, "run.delays")
    for name in _OF_DELAYS:
        if numbers.get(name, -1) < 0:
            raise ManifestError(f"run.delays.{name} in run.json is no number from 0 on")
    return numbers


def _dedupe_window_ms(root: _Reader) -> float | None:
    dedupe = root.raw("dedupe")
    if dedupe is None:
        return None
    return _numbers(dedupe, "run.dedupe").get("window_ms")


def _of_routes(routes: object, name: str) -> float | None:
    return None if routes is None else _numbers(routes, "run.routes").get(name)


def _left_behind(root: _Reader) -> tuple[tuple[str, str], ...]:
    readers = [
        _Reader(item, f"run.left_behind[{place}]")
        for place, item in enumerate(root.items("left_behind"))
    ]
    return tuple((reader.text("broker_group"), reader.text("node")) for reader in readers)


def _strings(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ManifestError(f"run.groups.{name} in run.json is not a list of names")
    return tuple(value)


def _numbers(value: object, path: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ManifestError(f"{path} in run.json is neither null nor an object")
    return {key: _number(item, f"{path}.{key}") for key, item in value.items() if item is not None}


def _number(value: object, path: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ManifestError(f"{path} in run.json is not a number")
    if not math.isfinite(value) or abs(value) > _NUMBER_MAX:
        raise ManifestError(f"{path} in run.json is beyond {_NUMBER_MAX:.0e}")
    return value


def _queues(root: _Reader) -> tuple[Queue, ...]:
    queues: dict[tuple[str, str, int], Queue] = {}
    for place, item in enumerate(root.items("queues")):
        reader = _Reader(item, f"run.queues[{place}]")
        queue = Queue(
            broker_group=reader.text("broker_group"),
            topic=reader.text("topic"),
            queue=reader.integer("queue"),
            min_offset=reader.integer("min_offset"),
            max_offset=reader.integer("max_offset"),
            drained=reader.optional_flag("drained"),
        )
        name = (queue.broker_group, queue.topic, queue.queue)
        if not 0 <= queue.queue <= _INT32_MAX:
            raise ManifestError(f"run.queues[{place}].queue in run.json is no queue")
        if name in queues:
            raise ManifestError(f"run.queues in run.json names {name} twice")
        queues[name] = queue
    return tuple(queues.values())


def _consumer_group(name: str, value: object) -> ConsumerGroup:
    reader = _Reader(value, f"run.consumer_groups.{name}")
    kind = reader.text("kind")
    if kind not in {"broadcast", "cluster"}:
        raise ManifestError(f"run.consumer_groups.{name}.kind in run.json is {kind!r}")
    retries_max = reader.optional_integer("retries_max")
    # What is refused for ever is never read ok: C6 says what such a group is owed.
    may_lose = retries_max is not None and reader.optional("at_least_once") is None
    return ConsumerGroup(
        name=name,
        kind=kind,
        at_least_once=not may_lose and reader.flag("at_least_once"),
        ordered=reader.flag("ordered"),
        rebalance_ms=reader.optional_number("rebalance_ms", 25_000),
        topics=reader.optional_texts("topics"),
        exclusive=reader.optional_flag("exclusive"),
        retries_max=retries_max,
        redelivery_ms=reader.optional_number("redelivery_ms", 10_000),
        retry_delay_ms=reader.number_or_none("retry_delay_ms"),
        wake_ms=reader.number_or_none("wake_ms"),
        lease_ms=reader.optional_number("lease_ms", 60_000),
        progress_ms=reader.number_or_none("progress_ms"),
        tags=reader.optional_texts("tags"),
    )


def _files(table: str, value: object) -> tuple[ListedFile, ...]:
    path = f"run.tables.{table}"
    files: dict[str, ListedFile] = {}
    for place, item in enumerate(_Reader(value, path).items("files")):
        reader = _Reader(item, f"{path}.files[{place}]")
        name = reader.text("name")
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in name:
            raise ManifestError(f"{path} in run.json names {name!r}, which is no relative path")
        if table != "nodes" and not _PATTERN.isdisjoint(name):
            raise ManifestError(f"{path} in run.json names {name!r}, which engines take for many")
        rows = reader.optional_integer("rows") if table == "nodes" else reader.integer("rows")
        if str(parts) in files:
            raise ManifestError(f"{path} in run.json lists {name!r} twice")
        files[str(parts)] = ListedFile(name=str(parts), rows=rows, sha256=reader.text("sha256"))
    return tuple(files.values())
