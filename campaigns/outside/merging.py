"""Several runs as one: each keeps to broker groups, clients and messages of its own.

Place in the data path: between plants and their judgement, for which one verdict then costs about
as much as one run's. A verifier that mixes up broker groups, consumer groups or transactions shows
itself here.

A5 asks that every consumer group reads every queue, of all broker groups: the groups of a merged
run are told not to promise that, and A5 is judged one by one.

Invariants: every name that a run made gets its prefix, so that nothing of one run can be taken for
something of another; what is common to a run (phases, limits, fault windows) has to be alike, so
that rules which look at fault windows or limits are judged one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from campaigns.outside.run_rows import Row, Run

__all__ = ["merged", "prefixed"]

_NAMES = (
    "broker_group",
    "value",
    "uniq_key",
    "tx",
    "client_group",
    "process",
    "client",
    "key",
    "shard",
)
# Their ref names a value, a receipt or a user; that of others is a word of the format.
_REFERRING = frozenset(
    {"send", "recall", "pop", "ack", "change", "request", "deliver", "reply", "assignment"}
)


def _topic(name: str | None, prefix: str) -> str | None:
    for kind in ("%RETRY%", "%DLQ%"):
        if name is not None and name.startswith(kind):
            return f"{kind}{prefix}{name[len(kind) :]}"
    return name


def _rename(row: Row, prefix: str) -> None:
    for name in _NAMES:
        if row.get(name) is not None:
            row[name] = prefix + row[name]
    if row.get("topic") is not None:
        row["topic"] = _topic(row["topic"], prefix)
    if row.get("keys"):
        row["keys"] = [prefix + key for key in row["keys"]]
    if row.get("ref") is not None and row.get("f") in _REFERRING:
        row["ref"] = prefix + row["ref"]
    for inner in ("messages", "assigned"):
        for entry in row.get(inner) or ():
            _rename(entry, prefix)


def prefixed(run: Run, prefix: str) -> Run:
    """The same run under other names. It is changed in place."""
    seen: set[int] = set()  # a message may lie in two rows
    for table in (run.ops, run.raft, run.log, run.cq):
        for row in table:
            row.pop("message", None)
            for inner in ("messages", "assigned"):
                if row.get(inner):
                    row[inner] = [dict(entry) for entry in row[inner]]
            assert id(row) not in seen
            seen.add(id(row))
            _rename(row, prefix)
    for fault in run.faults:
        fault["targets"] = [prefix + target for target in fault["targets"]]
    manifest = run.manifest
    manifest["queues"] = [dict(queue) for queue in manifest["queues"]]
    for queue in manifest["queues"]:
        _rename(queue, prefix)
    for key in ("groups", "consumer_groups"):
        manifest[key] = {prefix + name: settings for name, settings in manifest[key].items()}
    for settings in manifest["left_behind"]:
        settings["broker_group"] = prefix + settings["broker_group"]
    return run


def merged(runs: Sequence[Run]) -> Run:
    """One run of all `runs`, which have names of their own already."""
    whole = Run(manifest=dict(runs[0].manifest))
    for key, empty in (
        ("queues", []),
        ("left_behind", []),
        ("groups", {}),
        ("consumer_groups", {}),
    ):
        whole.manifest[key] = type(empty)()
    for key in ("delays", "routes"):
        values = [run.manifest[key] for run in runs if key in run.manifest]
        whole.manifest |= {key: values[0]} if values else {}
    for run in runs:
        for key in ("phases", "limits", "dedupe", "transactions"):
            assert run.manifest[key] == whole.manifest[key], key
        for key in ("queues", "left_behind"):
            whole.manifest[key] += run.manifest[key]
        for key in ("groups", "consumer_groups"):
            whole.manifest[key] |= run.manifest[key]
        for table in ("ops", "raft", "log", "cq", "faults"):
            getattr(whole, table).extend(getattr(run, table))
    whole.manifest["consumer_groups"] = {
        name: {**settings, "at_least_once": False}
        for name, settings in whole.manifest["consumer_groups"].items()
    }
    for number, fault in enumerate(whole.faults):
        fault["fault"] = number
    whole.number_ops()
    return whole
