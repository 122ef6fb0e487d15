"""A synthetic run whose tables are to be read from its nodes' stores."""

from __future__ import annotations

from pathlib import Path

from tests.verify.store_writer import contents_digest, write_stores
from tests.verify.synthetic import SyntheticRun

EXPORTED = ("ops", "faults", "raft")


def stored_run(run: Path, *, clean: bool = True) -> SyntheticRun:
    """A run whose log and ConsumeQueues are to be read from nodes/."""
    synthetic = SyntheticRun()
    write_stores(synthetic, run, clean=clean)
    chains = {entry.index: entry.chain for entry in synthetic.entries}
    for event in synthetic.raft:
        if event.get("chain"):
            event["chain"] = chains[event["index"]]
    stored = {
        rec.value: contents_digest(rec)
        for entry in synthetic.entries
        for rec in entry.recs
        if rec.kind in {"message", "half"}
    }
    for op in synthetic.ops:
        for message in op.get("messages") or ():
            message["digest"] = stored.get(message["value"])
    synthetic.write(run, tables=EXPORTED)
    return synthetic


def segments(run: Path, node: str) -> list[Path]:
    return sorted((run / "nodes" / "broker-a" / node / "commitlog").iterdir())
