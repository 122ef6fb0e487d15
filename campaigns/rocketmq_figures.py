"""What each run of a campaign acknowledged, lost, hid, doubled and waited, as a table.

    python -m campaigns.rocketmq_figures DIR      the folder of `campaigns/rocketmq-modes.toml`

Verdicts alone don't compare a system that stores a repeated send twice, as Apache RocketMQ does,
with one that does not. So what is stored twice is counted in three columns: transactions; messages
that a client had sent again, since an attempt went unanswered for a second or the sender repeated
the operation; and others, for which nobody asked.

A row is made of the run's verdict and of its tables, so only whole runs have one. Lost and hidden
are messages, each once: the witnesses of A4 and A5, which the campaign's index counts, are of a
place or of a group, and a lost message that was read before is none of theirs. What is gone is of
the index. A wait is the longest between two acknowledged writes of a client, or from the last that
any client had acknowledged to the end of the load, where it would have gone on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

__all__ = ["Figures", "figures_of", "table", "totals"]

_ATTEMPT_NS: Final = 1_000_000_000  # of the client's sends, after which it tries again
_SENT: Final = """
with sent as (
  select unnest(messages).value as value, op, type, t_complete - t_invoke as took
  from ops where f = 'send'
)
"""
_STORED_TWICE: Final = f"""
{_SENT},
places as (
  select value, count(distinct (topic, queue, queue_offset)) as places
  from log
  where kind in ('message', 'final') and committed and value is not null
    and topic in (select distinct topic from ops where f in ('send', 'half'))
  group by value having places > 1
),
tried as (
  select value, count(*) > 1 or max(took) > {_ATTEMPT_NS} or bool_or(type <> 'ok') as again
  from sent group by value
)
select
  coalesce(count_if(t.value is null), 0) as transactions,
  coalesce(count_if(t.again), 0) as resent,
  coalesce(count_if(not t.again), 0) as others
from places p left join tried t on p.value = t.value
"""
_LOST_AND_HIDDEN: Final = """
with user_topics as (select distinct topic from ops where f in ('send', 'half')),
named as (select f, type, tx, decision, client_group, unnest(messages).value as value from ops),
acked as (
  select value from named where f = 'send' and type = 'ok'
  union
  select h.value from named h semi join (
    select tx from ops where f = 'decide' and type = 'ok' and decision = 'commit'
  ) d on h.tx = d.tx
  where h.f = 'half'
),
stored as (
  select distinct value from log semi join user_topics using (topic)
  where kind in ('message', 'final') and committed
),
groups as (
  select distinct client_group from ops
  where f in ('poll', 'deliver') and type = 'ok' and final is not true
),
seen as (
  select value, count(distinct client_group) as groups
  from named semi join groups using (client_group)
  where f in ('poll', 'deliver') and type = 'ok'
  group by value
)
select
  count_if(s.value is null) as lost,
  count_if(s.value is not null and coalesce(r.groups, 0) < (select count(*) from groups)) as hidden
from acked a left join stored s using (value) left join seen r using (value)
"""
_LAST_ANSWER: Final = """
select max(t_complete) from ops
where f in ('send', 'half', 'decide') and type = 'ok' and t_complete <= {load_to}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run. `faults`: name = how many of them took effect, of how many."""

    engine: str
    seed: int
    verdict: str
    sends: int
    decisions: int
    lost: int
    hidden: int
    gone: int
    transactions_twice: int
    resent_twice: int
    others_twice: int
    wait_ms: float
    faults: Mapping[str, str]
    failed: tuple[str, ...]


def figures_of(run: Path, index_row: Mapping[str, Any]) -> Figures:
    """Read one run. `index_row` is its row in the campaign's index.json. Of one that passed the
    campaign keeps no tables: nothing is stored twice in it, and its operations are counted.

    Raises OSError, ValueError where it has no verdict; duckdb.Error where it lacks a table.
    """
    verdict = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    counts = index_row["counts"]
    coverage = verdict["coverage"]
    tables_retained = verdict["verdict"] != "pass" or index_row["whole"]
    if not tables_retained:
        sends = coverage["operations"].get("send", {}).get("ok", 0)
        decisions = coverage["operations"].get("decide", {}).get("ok", 0)
        transactions = resent = others = lost = hidden = 0
    else:
        sends, decisions, transactions, resent, others, lost, hidden = _counted(run)
    waits = [row["took_ms"] for row in coverage.get("availability", []) if row["measure"] == "gap"]
    if tables_retained:
        waits.append(_wait_at_the_end_ms(run))
    return Figures(
        engine=index_row["engine"],
        seed=index_row["seed"],
        verdict=verdict["verdict"],
        sends=sends,
        decisions=decisions,
        lost=lost,
        hidden=hidden,
        gone=counts.get("gone", 0),
        transactions_twice=transactions,
        resent_twice=resent,
        others_twice=others,
        wait_ms=max(waits, default=0.0),
        faults={
            name: f"{effects.get('taken', 0)} of {sum(effects.values())}"
            for name, effects in coverage.get("faults", {}).items()
        },
        failed=tuple(check["id"] for check in verdict["checks"] if check["verdict"] == "fail"),
    )


def _counted(run: Path) -> tuple[int, ...]:
    """Count messages and decisions that were acknowledged, what is stored twice, by whose wish, and
    what was lost and hidden."""
    with duckdb.connect() as tables:
        for name, folder in (("ops", "history"), ("log", "log")):
            tables.read_parquet(str(run / folder / "**" / "*.parquet")).create_view(name)
        [sends] = _row(tables, f"{_SENT} select count(*) from sent where type = 'ok'")
        decided = "select count(*) from ops where f = 'decide' and type = 'ok'"
        [decisions] = _row(tables, decided)
        twice = _row(tables, _STORED_TWICE)
        lost_and_hidden = _row(tables, _LOST_AND_HIDDEN)
    return (sends, decisions, *twice, *lost_and_hidden)


def _wait_at_the_end_ms(run: Path) -> float:
    """Measure from the last acknowledged write of the load to its end; 0 where none was."""
    _, load_to = json.loads((run / "run.json").read_text(encoding="utf-8"))["phases"]["load"]
    with duckdb.connect() as tables:
        tables.read_parquet(str(run / "history" / "**" / "*.parquet")).create_view("ops")
        [answered] = _row(tables, _LAST_ANSWER.format(load_to=load_to))
    return 0.0 if answered is None else (load_to - answered) / 1_000_000


def _row(tables: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    found = tables.execute(query).fetchone()
    assert found is not None, "an aggregate has a row"
    return found


def table(rows: Sequence[Figures]) -> str:
    """Return a row per run, by engine and seed."""
    lines = [
        "| engine | seed | faults that took effect | verdict | acknowledged | lost | hidden |"
        " gone | twice: tx, resent, other | longest wait |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda each: (each.engine, each.seed)):
        faults = ", ".join(f"{name} {text}" for name, text in row.faults.items())
        failed = f" ({' '.join(row.failed)})" if row.failed else ""
        lines.append(
            f"| {row.engine} | {row.seed} | {faults} | {row.verdict}{failed} |"
            f" {row.sends:,} and {row.decisions:,} | {row.lost} | {row.hidden} | {row.gone} |"
            f" {row.transactions_twice}, {row.resent_twice}, {row.others_twice} |"
            f" {row.wait_ms / 1000:.1f} s |"
        )
    return "\n".join(lines) + "\n"


def totals(rows: Sequence[Figures]) -> str:
    """Return a row per engine: sums over its seeds, and the median of the longest waits."""
    lines = [
        "| engine | seeds | acknowledged | lost | hidden | gone | twice: tx, resent, other |"
        " longest wait, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for engine in sorted({row.engine for row in rows}):
        own = [row for row in rows if row.engine == engine]
        waits = sorted(row.wait_ms for row in own)
        lines.append(
            f"| {engine} | {len(own)} | {sum(r.sends for r in own):,} and"
            f" {sum(r.decisions for r in own):,} | {sum(r.lost for r in own)} |"
            f" {sum(r.hidden for r in own)} | {sum(r.gone for r in own)} |"
            f" {sum(r.transactions_twice for r in own)}, {sum(r.resent_twice for r in own)},"
            f" {sum(r.others_twice for r in own)} | {waits[(len(waits) - 1) // 2] / 1000:.1f} s |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    folder = parser.parse_args().directory
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    rows = []
    for row in index["runs"]:
        try:
            rows.append(figures_of(folder / "runs" / row["run"], row))
        except (OSError, ValueError, duckdb.Error) as error:
            sys.stderr.write(f"rocketmq_figures: {row['run']} has no figures: {error}\n")
    sys.stdout.write(f"{totals(rows)}\n{table(rows)}")
    return 0 if len(rows) == len(index["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
