"""The points of a broker on the engines `async` and `sync`, beside those of `catalogue` that every
engine has.

Place in the data path: `broker.failpoints.catalogue` puts them together. What means the same as on
Raft has the same name there and here, so that whoever arms `log.append.after` needs not know the
engine.

Invariants: as in `catalogue`; nothing of `broker.ha` is imported here.
"""

from __future__ import annotations

from typing import Final

from broker.failpoints.rows import points

__all__ = ["HA_POINTS"]

_LOG: Final = "broker.ha.commit_log:CommitLog."

HA_POINTS: Final = (
    *points(
        _LOG + "append",
        before=("log.append.before", "an entry is about to be written to the log"),
        after=("log.append.after", "it is written, no fsync covers it"),
        fails=True,
    ),
    *points(
        "broker.ha.flusher:Flusher._begin",
        before=("log.sync.before", "between the write of entries and their fsync"),
    ),
    *points(
        _LOG + "claim",
        after=("log.sync.after", "the fsync is done, nobody was told"),
        fails=True,
    ),
    *points(
        _LOG + "truncate",
        before=("log.truncate.before", "a slave is about to drop what its master has not"),
        after=("log.truncate.after", "it is dropped, the master's is not written"),
        fails=True,
    ),
    *points(
        _LOG + "_begin_file",
        before=("log.segment.closed", "a file ends in a BLANK and is synced, no other is begun"),
        after=("log.segment.begun", "the log ends at the next file's beginning"),
        fails=True,
    ),
    *points(
        "broker.ha.log_files:LogFiles.remove",
        before=("log.segment.remove.before", "files are about to be removed"),
        after=("log.segment.remove.after", "their removal is durable"),
        fails=True,
    ),
    *points(
        _LOG + "receive",
        before=(
            "ha.receive.before",
            "bytes of the master are here, its slave has not written them",
        ),
        after=("ha.receive.after", "they are written, nothing of them is applied"),
        fails=True,
    ),
    *points(
        _LOG + "read_chunk",
        before=("ha.push.before", "a master is about to read what a slave lacks"),
        fails=True,
    ),
    *points(
        "broker.ha.slaves:Slaves._report",
        after=("ha.report.after", "a slave's report is here, nobody was answered for it"),
    ),
    *points(
        "broker.ha.engine:HaLog._on_durable",
        before=("sync.answer.before", "entries are durable, their senders do not know"),
        after=("sync.answer.after", "those that waited for it alone were answered"),
    ),
    *points(
        "broker.queues.state_machine:BrokerStateMachine.apply",
        before=("apply.before", "entries are about to be applied"),
        after=("apply.after", "they are applied, nobody was answered"),
    ),
    *points(
        "broker.ha.store:HaStore.write_checkpoint",
        before=("checkpoint.before", "the checkpoint is about to be written"),
        after=("checkpoint.after", "it is written"),
        fails=True,
    ),
)
