"""Randomly damaged run directories: whatever is done to a run, a verdict comes out of it.

Place in the data path: model runs are written, broken by a seed, and judged. The command

    python -m campaigns.outside.damage --engine duckdb --count 200 --seed 1 --output FILE

judges `count` of them and prints what came; with `--engine both` it also counts the checks on which
the engines differ, Spark with its settings for small runs and for large ones in turn. Exit code 1
where a verification raised, or engines differed.

Invariants: a seed breaks the same run in the same way, under any hash seed; most damages keep
run.json's digests true (`sealed`), so that it is the rules that see what was done, and not only the
comparison of digests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from campaigns.outside.model_cluster import model_run
from campaigns.outside.planting import FIVE, PLAIN, RETAINED, TWO
from verify.engine_choice import EngineChoice
from verify.run import Rules, load_rules, verify_run
from verify.spark.session import fit_session, spark_session
from verify.verdict import Verdict

__all__ = ["Judged", "damaged", "judge_damaged", "main"]

_ROWS_OF_A_LARGE_RUN: Final = 10_000_000
_TABLES: Final = ("ops", "raft", "log", "cq", "faults")
_BASES: Final = (PLAIN, TWO, FIVE, RETAINED)
_NEW_VALUES: Final[dict[str, list[Any]]] = {
    "string": [
        None,
        "",
        "x",
        "n1",
        "broker-a",
        "ok",
        "commit",
        "%RETRY%",
        "\u20ac\0'\"",
        "a" * 5000,
    ],
    "int64": [None, 0, -1, 1, 2**63 - 1, -(2**63), 10**18],
    "int32": [None, 0, -1, 2**31 - 1, -(2**31)],
    "bool": [None, True, False],
}
Damage = Callable[[Path, random.Random], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One damaged run and what was reported of it."""

    seed: int
    damages: list[str]
    verdict: str
    failed: list[str] = field(default_factory=list)
    unknown: int = 0
    differ: list[str] = field(default_factory=list)  # checks on which the engines differ
    raised: str | None = None


def _manifest(run: Path) -> Any:
    return json.loads((run / "run.json").read_text())


def _write_manifest(run: Path, manifest: Any) -> None:
    (run / "run.json").write_text(json.dumps(manifest))


def _table(run: Path, rng: random.Random) -> tuple[Path, list[dict[str, Any]], pa.Schema]:
    """A table's file that is there, its rows and its schema."""
    files = sorted(run.glob("*/*.parquet"))
    path = rng.choice(files)
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError):  # an earlier damage took it
        return path, [], pa.schema([])
    return path, table.to_pylist(), table.schema


def _put(run: Path, path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Writes the rows back and seals them: the manifest has the new count and digest."""
    if not len(schema):
        return
    columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)
    _seal(run, path, len(rows))


def _seal(run: Path, path: Path, rows: int) -> None:
    manifest = _manifest(run)
    name = path.relative_to(run).as_posix()
    tables = manifest.get("tables") if isinstance(manifest, dict) else None
    for table in (tables or {}).values():
        for file in table["files"]:
            if file["name"] == name:
                file.update(rows=rows, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    _write_manifest(run, manifest)


def _rows(change: Callable[[list[dict[str, Any]], random.Random], str]) -> Damage:
    def damage(run: Path, rng: random.Random) -> str:
        path, rows, schema = _table(run, rng)
        text = change(rows, rng) if rows else "nothing"
        _put(run, path, rows, schema)
        return f"{path.parent.name}: {text}"

    return damage


def _drop(rows: list[dict[str, Any]], rng: random.Random) -> str:
    count = rng.choice([1, 1, 3, len(rows) // 4, len(rows)])
    for _ in range(min(count, len(rows))):
        del rows[rng.randrange(len(rows))]
    return f"{count} rows dropped"


def _repeat(rows: list[dict[str, Any]], rng: random.Random) -> str:
    count = rng.choice([1, 2, 20])
    for _ in range(count):
        rows.insert(rng.randrange(len(rows)), dict(rng.choice(rows)))
    return f"{count} rows repeated"


def _swap_cells(rows: list[dict[str, Any]], rng: random.Random) -> str:
    name = rng.choice(sorted(rows[0]))
    for _ in range(rng.choice([1, 5, 50])):
        one, two = rng.choice(rows), rng.choice(rows)
        one[name], two[name] = two[name], one[name]
    return f"{name} swapped between rows"


def _shift_times(rows: list[dict[str, Any]], rng: random.Random) -> str:
    names = [name for name in sorted(rows[0]) if name.startswith("t_") or name == "t"]
    if not names:
        return "no times"
    name, by = rng.choice(names), rng.choice([-(10**9), -1, 1, 10**6, 10**10])
    for row in rng.sample(rows, min(len(rows), rng.choice([1, 10, len(rows)]))):
        if row[name] is not None:
            row[name] += by
    return f"{name} shifted by {by}"


def _flip_digests(rows: list[dict[str, Any]], rng: random.Random) -> str:
    for row in rng.sample(rows, min(len(rows), 20)):
        for entry in [row, *(row.get("messages") or ())]:
            for name in ("digest", "chain", "tag_hash"):
                if entry.get(name) is not None:
                    entry[name] ^= 1 << rng.randrange(60)
    return "digests and chains flipped"


def _null_in_structs(rows: list[dict[str, Any]], rng: random.Random) -> str:
    for row in rng.sample(rows, min(len(rows), 60)):
        for inner in ("messages", "assigned"):
            if row.get(inner):
                entry = rng.choice(row[inner])
                entry[rng.choice(sorted(entry))] = None
                if rng.random() < 0.2:
                    row[inner] = [None, *row[inner]]
        if row.get("keys"):
            row["keys"] = [None]
        if row.get("voters"):
            row["voters"] = rng.choice([[], [None], None])
    return "nulls within lists and structs"


def _strange_values(run: Path, rng: random.Random) -> str:
    path, rows, schema = _table(run, rng)
    if not rows:
        return "nothing"
    fields = [f for f in schema if str(f.type) in _NEW_VALUES]
    chosen = rng.choice(fields)
    value = rng.choice(_NEW_VALUES[str(chosen.type)])
    for row in rng.sample(rows, min(len(rows), rng.choice([1, 10, len(rows)]))):
        row[chosen.name] = value
    _put(run, path, rows, schema)
    return f"{path.parent.name}: {chosen.name} is {str(value)[:12]!r}"


def _wrong_type(run: Path, rng: random.Random) -> str:
    path, rows, schema = _table(run, rng)
    if not len(schema):
        return "nothing"
    place = rng.randrange(len(schema))
    name = schema.field(place).name
    made: pa.DataType = rng.choice(
        [pa.string(), pa.float64(), pa.binary(), pa.int8(), pa.list_(pa.int64())]
    )
    fields = [pa.field(name, made) if n == place else f for n, f in enumerate(schema)]
    for row in rows:
        row[name] = None
    _put(run, path, rows, pa.schema(fields))
    return f"{path.parent.name}: {name} is {made}"


def _columns(run: Path, rng: random.Random) -> str:
    path, rows, schema = _table(run, rng)
    if not len(schema):
        return "nothing"
    fields = list(schema)
    if rng.random() < 0.5:
        gone = fields.pop(rng.randrange(len(fields)))
        text = f"{gone.name} is missing"
    else:
        fields.insert(0, pa.field("colour", pa.string()))
        rng.shuffle(fields)
        text = "a column more, all in another order"
    _put(run, path, rows, pa.schema(fields))
    return f"{path.parent.name}: {text}"


def _bytes(run: Path, rng: random.Random) -> str:
    """A file is cut, emptied, flipped or gone; sealed or not."""
    path = rng.choice(sorted(run.glob("*/*.parquet")))
    data = bytearray(path.read_bytes())
    kind = rng.choice(["cut", "empty", "flipped", "gone"])
    if kind == "gone":
        path.unlink()
        return f"{path.parent.name}: gone"
    if kind == "cut":
        data = data[: rng.randrange(max(1, len(data)))]
    elif kind == "empty":
        data = bytearray()
    elif data:
        for _ in range(rng.choice([1, 30])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))
    if rng.random() < 0.7:
        _seal_as_it_was(run, path)
    return f"{path.parent.name}: {kind}"


def _seal_as_it_was(run: Path, path: Path) -> None:
    """The digest of what is there now, with the old number of rows."""
    manifest = _manifest(run)
    name = path.relative_to(run).as_posix()
    tables = manifest.get("tables") if isinstance(manifest, dict) else None
    for table in (tables or {}).values():
        for file in table["files"]:
            if file["name"] == name:
                file["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    _write_manifest(run, manifest)


def _manifest_key(run: Path, rng: random.Random) -> str:
    manifest = _manifest(run)
    where, name = manifest, rng.choice(sorted(manifest))
    while rng.random() < 0.6:
        inner = where[name]
        if isinstance(inner, dict) and inner:
            where, name = inner, rng.choice(sorted(inner))
        elif isinstance(inner, list) and inner:
            where, name = inner, rng.randrange(len(inner))
        else:
            break
    if isinstance(where, dict) and rng.random() < 0.3:
        del where[name]
        text = "gone"
    else:
        value = rng.choice(
            [None, 0, -1, 1.5, 10**30, "", "x", [], {}, True, [1, 2], {"a": None}, "2**63", [None]]
        )
        where[name] = value
        text = repr(value)
    _write_manifest(run, manifest)
    return f"run.json: {name} is {text}"


def _manifest_text(run: Path, rng: random.Random) -> str:
    text = (run / "run.json").read_text()
    place = rng.randrange(len(text))
    (run / "run.json").write_text(text[:place] + rng.choice(["", "\ud7ff", "}", "NaN"]))
    return "run.json: cut"


_ROW_DAMAGES: Final[tuple[Damage, ...]] = (
    *(_rows(change) for change in (_drop, _repeat, _swap_cells, _shift_times, _flip_digests)),
    _rows(_null_in_structs),
    _strange_values,
    _strange_values,
)
_DAMAGES: Final[tuple[Damage, ...]] = (
    *_ROW_DAMAGES,
    *_ROW_DAMAGES,
    *_ROW_DAMAGES,
    _wrong_type,
    _columns,
    _bytes,
    _manifest_key,
    _manifest_key,
    _manifest_key,
)


def damaged(seed: int, folder: Path) -> list[str]:
    """Writes the run of `seed` to `folder`, broken; answers what was done."""
    rng = random.Random(f"damage {seed}")
    model_run(rng.choice(_BASES)).write(folder, files_per_table=rng.choice([1, 1, 3]))
    if rng.random() < 0.02:
        return [_manifest_text(folder, rng)]
    done = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        damage = rng.choice(_DAMAGES)
        done.append(damage(folder, rng))
        if not any(folder.glob("*/*.parquet")) or not isinstance(_manifest(folder), dict):
            break
        if any("run.json" in text for text in done):
            break  # what the manifest lists may be gone
    return done


def judge_damaged(seed: int, *, engine: EngineChoice, rules: Rules) -> Judged:
    """The verdict on the run of `seed`."""
    folder = Path(tempfile.mkdtemp(prefix="ledgermq-damaged-"))
    try:
        done = damaged(seed, folder)
        try:
            verdict = verify_run(folder, engine=engine, rules=rules)
            json.loads((folder / "verdict.json").read_text())
        except Exception:  # noqa: BLE001 - that it raises anything at all is the finding
            return Judged(
                seed=seed, damages=done, verdict="raised", raised=traceback.format_exc(limit=-3)
            )
        return _judged(seed, done, verdict)
    finally:
        shutil.rmtree(folder)


def _judged(seed: int, done: list[str], verdict: Verdict) -> Judged:
    assert verdict.outcome.exit_code in {0, 1, 2}
    checks = verdict.checks
    return Judged(
        seed=seed,
        damages=done,
        verdict=verdict.outcome.value,
        failed=[check.id for check in checks if check.verdict.value == "fail"],
        unknown=sum(check.verdict.value == "unknown" for check in checks),
        differ=[
            f"{check.id}: {check.reason}"
            for check in checks
            if check.reason is not None
            and ("engines differ" in check.reason or "could judge" in check.reason)
        ],
    )


@contextmanager
def _one_session(engine: EngineChoice) -> Iterator[None]:
    """One Spark session for all runs: starting a JVM for each costs more than judging it. Every
    second run is judged as if it were a large one."""
    if engine == "duckdb":
        yield
        return
    with spark_session() as session:
        rows = cycle([0, _ROWS_OF_A_LARGE_RUN])

        @contextmanager
        def shared(**_: object) -> Iterator[SparkSession]:
            fit_session(session, next(rows))
            yield session

        with patch("verify.run.spark_session", shared):
            yield


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=["duckdb", "spark", "both"], default="duckdb")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    rules = load_rules()
    results = []
    with _one_session(options.engine):
        for seed in range(options.seed, options.seed + options.count):
            result = judge_damaged(seed, engine=options.engine, rules=rules)
            results.append(result)
            bad = result.raised or "; ".join(result.differ)
            sys.stdout.write(
                f"{seed:5} {result.verdict:8}{len(result.failed):3} failed"
                f" {result.unknown:3} unknown"
                f"  {' + '.join(result.damages)}{'  !! ' + bad if bad else ''}\n"
            )
            sys.stdout.flush()
    verdicts = Counter(result.verdict for result in results)
    differing = [result for result in results if result.differ]
    sys.stdout.write(
        f"{len(results)} damaged runs: {dict(sorted(verdicts.items()))}; "
        f"engines differ on {len(differing)}\n"
    )
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {name: getattr(result, name) for name in Judged.__dataclass_fields__}
            for result in results
        ]
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if verdicts["raised"] or differing else 0


if __name__ == "__main__":
    sys.exit(main())
