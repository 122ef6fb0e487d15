"""The engines by which a cluster of this project replicates, by the names that people give.

Place in the data path: `chaos.cluster.layout` lays a cluster out on one of them; scenarios,
campaigns and the command line name them.

| name | who becomes master | an answer comes |
|---|---|---|
| raft | whom a majority elects | when a majority has fsynced it |
| pysyncobj | whom PySyncObj elects | when a majority has it |
| async | the configured one, always | when the master has it |
| sync | the configured one, always | when `in_sync_replicas` nodes have it |

With `-flush` behind the name (async-flush, sync-flush) the master's answer waits for its fsync too;
without it the log is fsynced every 500 ms. RocketMQ's modes are named alike
(`chaos.cluster.rocketmq_layout`).

Pure: names alone.

Source: docs/decisions/0028-master-and-slaves.md.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENGINES", "MASTER_SLAVE_ENGINES", "engine_and_flush", "name_of_engine"]

MASTER_SLAVE_ENGINES: Final = ("async", "sync")
"""Engines whose master is configured."""

_WITH_FLUSH: Final = "-flush"

ENGINES: Final = (
    "raft",
    "pysyncobj",
    *(name + end for name in MASTER_SLAVE_ENGINES for end in ("", _WITH_FLUSH)),
)


def engine_and_flush(name: str) -> tuple[str, str | None]:
    """Return the setting `engine` of a broker, and its setting `flush`; None: it has no such."""
    engine = name.removesuffix(_WITH_FLUSH)
    if engine not in MASTER_SLAVE_ENGINES:
        return name, None
    return engine, "sync" if name != engine else "async"


def name_of_engine(engine: str, flush: object) -> str:
    """Return the name of these settings, as `engine_and_flush` takes it apart."""
    has_flush = engine in MASTER_SLAVE_ENGINES and flush == "sync"
    return f"{engine}{_WITH_FLUSH}" if has_flush else engine
