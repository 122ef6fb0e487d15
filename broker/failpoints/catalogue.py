"""The points of a broker at which a laboratory can make it crash, wait or fail.

Place in the data path: `broker.failpoints.installation` reads the rows. A point stands right before
or right after a call that the row names; what lies between two calls (a write and its fsync, an
fsync and the answer) is the point after the one or before the other.

Invariants (tests/broker/failpoints): every place exists; `ERROR` stands only where the call's own
contract raises OSError, so that what follows is what a failing disk would bring about.

Source: the points at which etcd's robustness tests crash a member (beforeSave, afterSave,
beforeApply, ...), and the windows that this project's own docstrings speak of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.failpoints.ha_points import HA_POINTS
from broker.failpoints.orders import Action
from broker.failpoints.points import Label, Point, When
from broker.failpoints.rows import FAILING, points
from remoting.protocol.codes import RequestCode

__all__ = ["DISK_POINTS", "points_of"]

_OWN_CODES: Final = range(60_001, 60_100)  # an operator's view of a node uses up no count


def _command_label(at: int) -> Label:
    """Name a pass by the request in argument `at`; ledgermq's own requests do not count."""

    def label(*arguments: Any) -> str | None:
        code = arguments[at].command.code
        if code in _OWN_CODES:
            return None
        try:
            return RequestCode(code).name
        except ValueError:
            return str(code)

    return label


def _kind_label(at: int) -> Label:
    """Name a pass by the class of argument `at`, such as AppendEntries."""
    return lambda *arguments: type(arguments[at]).__name__


def _text_label(at: int) -> Callable[..., str]:
    return lambda *arguments: str(arguments[at])


_LOG: Final = "raft.log.segment_log:SegmentLog."
_FILES: Final = "raft.log.segment_files:SegmentFiles."
_SNAPSHOTS: Final = "raft.snapshots.snapshot:SnapshotFiles."
_SHELL: Final = "raft.node.core_shell:CoreShell."
_NODE: Final = "raft.node.node:RaftNode."

_LOG_POINTS: Final = (
    *points(
        _LOG + "append",
        before=("log.append.before", "entries are about to be written to the log"),
        after=("log.append.after", "entries are written, no fsync covers them"),
        fails=True,
    ),
    # Passed by a sync on a thread and by one that the kernel carries out beside the loop.
    *points(
        _LOG + "_tail_to_sync",
        before=("log.sync.before", "between the write of entries and their fsync"),
        fails=True,
    ),
    *points(
        _LOG + "_claim",
        after=("log.sync.after", "the fsync is done, nobody was told"),
        fails=True,
    ),
    *points(
        _LOG + "truncate_from",
        before=("log.truncate.before", "a follower is about to drop entries that conflict"),
        after=("log.truncate.after", "they are dropped, the leader's are not written"),
        fails=True,
    ),
    *points(
        _LOG + "reset",
        before=("log.reset.before", "an install is about to empty the log"),
        after=("log.reset.after", "the log is empty and begins at the snapshot's place"),
        fails=True,
    ),
    *points(
        _FILES + "finish_last",
        after=("log.segment.closed", "a segment is cut and synced, the next one is not begun"),
        fails=True,
    ),
    *points(
        _FILES + "begin",
        after=("log.segment.begun", "the next segment has its name"),
        fails=True,
    ),
    *points(
        _FILES + "write_sidecar",
        before=("log.sidecar.before", "a closed segment has no sidecar yet"),
        after=("log.sidecar.after", "its sidecar is durable"),
        fails=True,
    ),
    *points(
        _FILES + "remove",
        before=("log.segment.remove.before", "a segment is about to be removed"),
        after=("log.segment.remove.after", "its removal is durable"),
        fails=True,
    ),
    *points(
        "raft.log.hard_state:HardStateFile.persist",
        before=("hard_state.before", "term and vote are about to be saved"),
        after=("hard_state.after", "they are durable, and no message that needs them has left"),
        fails=True,
    ),
    *points(
        "raft.log.hard_state:HardStateFile._write",
        after=("hard_state.copy.after", "one of the two copies is written and synced"),
        fails=True,
    ),
    *points(
        "raft.log.log_repair:LogRepair._write",
        before=("log.repair.before", "good entries are about to replace damaged ones"),
        after=("log.repair.after", "they stand in the segment"),
        fails=True,
    ),
)

_SNAPSHOT_POINTS: Final = (
    *points(
        "raft.snapshots.snapshot_keeper:SnapshotKeeper._capture",
        before=("snapshot.capture.before", "the state is about to be captured, on the loop"),
        after=("snapshot.capture.after", "it is captured, nothing is written"),
    ),
    *points(
        _SNAPSHOTS + "write",
        before=("snapshot.write.before", "derived files and log are synced, the snapshot begins"),
        after=("snapshot.write.after", "the snapshot is durable and does not count yet"),
        fails=True,
    ),
    *points(
        "raft.snapshots.snapshot:_write",
        before=("snapshot.block.before", "in the middle of a snapshot's file, before each block"),
        fails=True,
    ),
    *points(
        _SNAPSHOTS + "_adopt",
        before=("snapshot.name.before", "the file is whole and synced under its temporary name"),
        after=("snapshot.name.after", "its final name is durable"),
        fails=True,
    ),
    *points(
        _SNAPSHOTS + "retain",
        before=("snapshot.remove.before", "older snapshots are about to be removed"),
        fails=True,
    ),
    *points(
        "raft.snapshots.install:InstallSender.read",
        before=("install.send.before", "a leader is about to read a chunk for a follower"),
    ),
    *points(
        "raft.snapshots.install:InstallReceiver._append",
        before=("install.chunk.before", "a received chunk is about to be written"),
        after=("install.chunk.after", "it is written"),
        fails=True,
    ),
    *points(
        "raft.snapshots.install:InstallReceiver._finish",
        before=("install.whole.before", "all chunks are here, nothing was verified"),
        fails=True,
    ),
    *points(
        "raft.node.state_install:StateInstall.restore",
        before=("install.restore.before", "the log was reset, the state is still the old one"),
        after=("install.restore.after", "the snapshot's state is in force"),
        fails=True,
    ),
    *points(
        "raft.node.node:restore_newest",
        before=("start.restore.before", "a start is about to restore the newest snapshot"),
        after=("start.restore.after", "the state is restored, nothing is applied"),
        fails=True,
    ),
)

_NODE_POINTS: Final = (
    *points(
        _SHELL + "_on_synced",
        before=("sync.answer.before", "a round is durable, neither core nor peers know"),
        after=("sync.answer.after", "acknowledgements of the round are on their way"),
    ),
    *points(
        _SHELL + "_note_commit",
        before=("commit.before", "the commit index has moved, nothing is applied"),
    ),
    *points(
        "raft.node.applier:Applier._call",
        before=("apply.before", "committed entries are about to be applied"),
        after=("apply.after", "they are applied and their proposals resolved"),
    ),
    *points(
        "broker.state.state:BrokerState.apply",
        after=(
            "apply.state.after",
            "in the middle of apply: the state has the entry, its queues do not",
        ),
    ),
    *points(
        "broker.queues.consume_queue:ConsumeQueue.append",
        after=("apply.queue.after", "in the middle of apply: one queue has its units"),
        fails=True,
    ),
    *points(
        "broker.queues.consume_queues:ConsumeQueues.sync",
        before=("queues.sync.before", "derived files are about to be synced for a snapshot"),
        after=("queues.sync.after", "they are durable"),
        fails=True,
    ),
    *points(
        _SHELL + "change_membership",
        before=("membership.before", "a leader is about to propose a change of members"),
        after=("membership.after", "it is committed and applied, nobody was answered"),
    ),
    *points(
        _NODE + "_on_configuration",
        before=("membership.in_force.before", "a configuration is in the log, links are as before"),
        after=("membership.in_force.after", "links follow the new configuration"),
    ),
    *points(
        _SHELL + "transfer_leadership",
        before=("transfer.before", "leadership is about to be handed over by request"),
    ),
    *points(
        "raft.store.node_store:NodeStore.write_checkpoint",
        before=("checkpoint.before", "the checkpoint is about to be written"),
        after=("checkpoint.after", "it is written"),
        fails=True,
    ),
    *points(
        "raft.store.node_store:NodeStore.bear",
        before=("identity.before", "the store is about to be admitted to its group"),
        after=("identity.after", "its admission is durable"),
        fails=True,
    ),
    *points(
        "raft.peers.transport:TcpTransport.send",
        before=("peer.send.before", "a message to a peer is about to leave"),
        label=_kind_label(1),
    ),
    *points(
        _SHELL + "on_message",
        before=("peer.receive.before", "a peer's message has arrived, the core has not seen it"),
        label=_kind_label(1),
    ),
)

_BROKER_POINTS: Final = (
    *points(
        "broker.process.server:Broker._handle",
        before=("request.before", "a request is decoded, nothing was done about it"),
        label=_command_label(1),
    ),
    *points(
        "broker.request.request:Request.reply",
        before=("reply.before", "the outcome is known, its answer has not left"),
        after=("reply.after", "the answer is with the socket"),
        label=_command_label(0),
    ),
    *points(
        "broker.leader.proposer:Proposer.submit",
        before=("propose.before", "a change is checked and about to wait for its batch"),
    ),
    *points(
        "broker.leader.proposer:Proposer._encode",
        after=("propose.encoded", "a batch has its offsets, its entry is not in the log"),
    ),
    *points(
        "broker.leader.proposer:Proposer._on_result",
        before=("propose.result.before", "an entry is committed, no client was answered"),
    ),
    *points(
        "broker.transaction.end_transaction:EndTransactionProcessor._propose",
        before=("transaction.decide.before", "before the op record of a decision is proposed"),
        after=("transaction.decide.after", "after the op record of a decision is proposed"),
    ),
    *points(
        "broker.transaction.check_back:CheckBack._send_check",
        before=("transaction.check.before", "a producer is about to be asked for its decision"),
    ),
    *points(
        "broker.delay.delivery:DelayDelivery._deliver",
        before=("delay.deliver.before", "due messages of a level are about to be delivered"),
    ),
    *points(
        "broker.delay.timers:Timers._deliver_some",
        before=("timer.deliver.before", "due timer messages are about to be delivered"),
    ),
    *points(
        "broker.pop.pop:PopProcessor._landed",
        before=("pop.landed.before", "a holding is committed, the popped messages are not sent"),
    ),
    *points(
        "broker.pop.pop_ack:PopAckProcessor._propose",
        before=("pop.ack.before", "acknowledgements of a pop are about to be proposed"),
    ),
    *points(
        "broker.pop.revive:PopRevive._propose",
        before=("pop.revive.before", "a popped message's return is about to be proposed"),
    ),
    *points(
        "broker.index.indexer:Indexer._work",
        before=("index.before", "keys of applied entries are about to be indexed"),
    ),
    *points(
        "broker.process.registration:Registration._register",
        before=("register.before", "a name server is about to be told of this broker"),
        after=("register.after", "it has answered or failed"),
        label=_text_label(1),
    ),
    *points(
        "broker.process.registration:Registration.unregister",
        before=("unregister.before", "a clean stop is about to leave the name servers"),
    ),
    *points(
        "broker.request.forwarding:Forwarding._try",
        before=("forward.before", "a follower is about to ask its leader for a client"),
        label=_command_label(1),
    ),
    *points(
        "broker.process.housekeeping:Housekeeper._retain",
        before=("retention.before", "expired segments are about to be dropped"),
    ),
)

_OF_RAFT: Final = (*_LOG_POINTS, *_SNAPSHOT_POINTS, *_NODE_POINTS)
_OF_ALL_ENGINES: Final = ("broker.", "raft.snapshots.snapshot:")


def points_of(engine: str) -> tuple[Point, ...]:
    """Return the points of a broker on that engine that stand at calls. Those of Raft's own parts
    are never passed on another one."""
    if engine in {"async", "sync"}:
        shared = [row for row in _OF_RAFT if row.place.startswith(_OF_ALL_ENGINES)]
        return (*HA_POINTS, *shared, *_BROKER_POINTS)
    return (*_OF_RAFT, *_BROKER_POINTS)


DISK_POINTS: Final = tuple(
    Point(
        name=f"disk.{name}",
        place=f"raft.log.disk:{place}",
        when=When.BEFORE,
        summary=summary,
        actions=FAILING | more,
        label=str,
    )
    for name, place, summary, more in (
        ("open", "OsDisk.open", "a file of the store is opened, or made", set[Action]()),
        ("read", "OsDiskFile.pread", "bytes of the store are read", set[Action]()),
        ("write", "OsDiskFile.pwritev", "bytes of the store are written", {Action.SHORT}),
        ("allocate", "OsDiskFile.allocate", "blocks are reserved for a file", set[Action]()),
        ("truncate", "OsDiskFile.truncate", "a file gets another size", set[Action]()),
        ("fsync", "OsDiskFile.sync", "a file is synced", {Action.LIE}),
        ("fsync_directory", "OsDisk.sync_directory", "names are synced", {Action.LIE}),
        ("rename", "OsDisk.rename", "a file gets another name", set[Action]()),
        ("remove", "OsDisk.remove", "a file is removed", set[Action]()),
    )
)
"""The points of the disk under log, snapshots and marks; their labels are paths in the store."""
