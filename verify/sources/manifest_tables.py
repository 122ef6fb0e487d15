"""The contents of run.json, as tables that rules can join.

Place in the data path: beside the run's own tables in every engine; their names begin with `run_`.

    run_settings     one row: what the run is, its phases, its settings; times in nanoseconds
    run_queues       the queues as they were read after the heal
    run_groups       the consumer groups; those with of_all_topics list no topics
    run_group_topics (client_group, topic) of the groups that list theirs
    run_group_tags   (client_group, tag, tag_hash) of the groups that get some tags only
    run_voters       (broker_group, node) of the voters at the start
    run_left_behind  (broker_group, node) of replicas that had not caught up

Invariants: a setting that run.json does not have is null; `has_x` says whether the table x is
listed, or read from the replicas' stores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from verify.sources.format_tables import TABLES
from verify.sources.manifest import OWN_SYSTEM, Manifest
from verify.sources.tag_hash import tag_hash

__all__ = ["MANIFEST_TABLES", "OWN_SYSTEM", "manifest_tables"]

_MS: Final = 1_000_000
_PHASES: Final = ("load", "heal", "drain")
_STRING, _LONG, _BOOL = pa.string(), pa.int64(), pa.bool_()

_SETTINGS: Final = pa.schema(
    [
        ("system", _STRING),
        ("own_system", _BOOL),
        ("engine", _STRING),
        ("in_sync_replicas", _LONG),
        *((f"{phase}_{end}", _LONG) for phase in _PHASES for end in ("from", "to")),
        ("has_transactions", _BOOL),
        ("timeout_ns", _LONG),
        ("check_interval_ns", _LONG),
        ("check_max", _LONG),
        ("has_dedupe", _BOOL),
        ("dedupe_window_ns", _LONG),
        ("has_delays", _BOOL),
        ("early_ns", _LONG),
        ("recall_ns", _LONG),
        ("lost_ns", _LONG),
        ("has_limits", _BOOL),
        ("late_ns", _LONG),
        ("rto_ns", _LONG),
        ("gap_ns", _LONG),
        ("lag_ns", _LONG),
        ("acked_share_min", pa.float64()),
        ("route_expire_ns", _LONG),
        ("route_gone_ns", _LONG),
        ("clock_error_ns", _LONG),
        ("has_left_behind", _BOOL),
        *((f"has_{name}", _BOOL) for name in TABLES),
    ]
)
_NODES: Final = pa.schema([("broker_group", _STRING), ("node", _STRING)])

MANIFEST_TABLES: Final[Mapping[str, pa.Schema]] = {
    "run_settings": _SETTINGS,
    "run_queues": pa.schema(
        [
            ("broker_group", _STRING),
            ("topic", _STRING),
            ("queue", pa.int32()),
            ("min_offset", _LONG),
            ("max_offset", _LONG),
            ("drained", _BOOL),
        ]
    ),
    "run_groups": pa.schema(
        [
            ("client_group", _STRING),
            ("kind", _STRING),
            ("at_least_once", _BOOL),
            ("ordered", _BOOL),
            ("rebalance_ns", _LONG),
            ("of_all_topics", _BOOL),
            ("exclusive", _BOOL),
            ("retries_max", _LONG),
            ("redelivery_ns", _LONG),
            ("retry_delay_ns", _LONG),
            ("wake_ns", _LONG),
            ("lease_ns", _LONG),
            ("progress_ns", _LONG),
            ("of_some_tags", _BOOL),
        ]
    ),
    "run_group_topics": pa.schema([("client_group", _STRING), ("topic", _STRING)]),
    "run_group_tags": pa.schema([("client_group", _STRING), ("tag", _STRING), ("tag_hash", _LONG)]),
    "run_voters": _NODES,
    "run_left_behind": _NODES,
}


def manifest_tables(manifest: Manifest, present: Collection[str]) -> Mapping[str, pa.Table]:
    """Build one Arrow table per name of `MANIFEST_TABLES`; `present` are the run's own tables."""
    rows: dict[str, list[dict[str, object]]] = {
        "run_settings": [_settings(manifest, present)],
        "run_queues": [
            {name: getattr(queue, name) for name in MANIFEST_TABLES["run_queues"].names}
            for queue in manifest.queues
        ],
        "run_groups": [
            {
                "client_group": group.name,
                "kind": group.kind,
                "at_least_once": group.at_least_once and group.tags is None,  # C13 has the others
                "ordered": group.ordered,
                "rebalance_ns": _ns(group.rebalance_ms),
                "of_all_topics": group.topics is None,
                "exclusive": group.exclusive,
                "retries_max": group.retries_max,
                "redelivery_ns": _ns(group.redelivery_ms),
                "retry_delay_ns": _ns(group.retry_delay_ms),
                "wake_ns": _ns(group.wake_ms),
                "lease_ns": _ns(group.lease_ms),
                "progress_ns": _ns(group.progress_ms),
                "of_some_tags": group.tags is not None,
            }
            for group in manifest.consumer_groups
        ],
        "run_group_topics": [
            {"client_group": group.name, "topic": topic}
            for group in manifest.consumer_groups
            for topic in dict.fromkeys(group.topics or ())
        ],
        "run_group_tags": [
            {"client_group": group.name, "tag": tag, "tag_hash": tag_hash(tag)}
            for group in manifest.consumer_groups
            for tag in dict.fromkeys(group.tags or ())
        ],
        "run_voters": [
            {"broker_group": group, "node": node}
            for group, nodes in manifest.groups.items()
            for node in nodes
        ],
        "run_left_behind": [
            {"broker_group": group, "node": node} for group, node in manifest.left_behind or ()
        ],
    }
    return {
        name: pa.Table.from_pylist(rows[name], schema=schema)
        for name, schema in MANIFEST_TABLES.items()
    }


def _settings(manifest: Manifest, present: Collection[str]) -> dict[str, object]:
    transactions, limits = manifest.transactions or {}, manifest.limits or {}
    delays = manifest.delays or {}
    phases = {
        f"{phase}_{end}": manifest.phases[phase][place] if phase in manifest.phases else None
        for phase in _PHASES
        for place, end in enumerate(("from", "to"))
    }
    check_max = transactions.get("check_max")
    return phases | {
        "system": manifest.system,
        "own_system": manifest.system == OWN_SYSTEM,
        "engine": manifest.engine,
        "in_sync_replicas": manifest.in_sync_replicas,
        "has_transactions": manifest.transactions is not None,
        "timeout_ns": _ns(transactions.get("timeout_ms")),
        "check_interval_ns": _ns(transactions.get("check_interval_ms")),
        "check_max": None if check_max is None else int(check_max),
        "has_dedupe": manifest.dedupe,
        "dedupe_window_ns": _ns(manifest.dedupe_window_ms),
        "has_delays": manifest.delays is not None,
        "early_ns": _ns(delays.get("early_ms")),
        "recall_ns": _ns(delays.get("recall_ms")),
        "lost_ns": _ns(delays.get("lost_ms")),
        "has_limits": manifest.limits is not None,
        # 0 is no limit: a scenario's limits are numbers all.
        "late_ns": _ns(limits.get("late_ms")) or None,
        "rto_ns": _ns(limits.get("rto_ms")),
        "gap_ns": _ns(limits.get("gap_ms")),
        "lag_ns": _ns(limits.get("lag_ms")),
        "acked_share_min": limits.get("acked_share_min"),
        "route_expire_ns": _ns(manifest.route_expire_ms),
        "route_gone_ns": _ns(manifest.route_gone_ms),
        "clock_error_ns": manifest.clock_error_ns,
        "has_left_behind": manifest.left_behind is not None,
        **{f"has_{name}": name in present for name in TABLES},
    }


def _ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * _MS)
