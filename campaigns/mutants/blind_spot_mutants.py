"""Planted bugs that only rare places show: in an opening, in a clean stop, with learners, without
room, in what a process that died had not made durable."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch
from campaigns.mutants.storage_mutants import SETTLE_UNSYNCED

__all__ = ["BLIND_SPOT_MUTANTS"]

BLIND_SPOT_MUTANTS = (
    Mutant(
        name="learners confirm reads",
        breaks="a leader cut off with learners takes their echoes for those of voters",
        expected=("reads",),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.serve_reads",
                before="rounds = [peer.read_round for peer in self._voting_peers]",
                after="""
                rounds = sorted((peer.read_round for peer in self._peers), reverse=True)
                rounds = rounds[: len(self._voting_peers)]
                """,
            ),
        ),
    ),
    Mutant(
        name="read answered before it is applied",
        kind="group",
        breaks="the read point is known, what stands below it is not applied yet",
        expected=("G5", "G6", "reads"),
        patches=(
            SourcePatch(
                module="raft.node.read_points",
                within="ReadPoints.answered",
                before="heapq.heappush(self._waiting, (state.index, self._waiting_count, future))",
                after="heapq.heappush(self._waiting, (self._applier.applied_index, self._waiting_count, future))",
            ),
        ),
    ),
    Mutant(
        name="checkpoint beyond what is durable",
        breaks="a hint of entries that a crash takes back is true of others in their place",
        expected=("checkpoint before durable", "R6", "R8"),
        patches=(
            SourcePatch(
                module="raft.store.checkpoint",
                within="hint",
                before="return min(commit_index, durable_index)",
                after="return commit_index",
            ),
        ),
    ),
    Mutant(
        name="clean stop's checkpoint before its fsync",
        breaks="a stop that is killed on its way leaves a hint of what was never made durable",
        expected=("checkpoint before durable", "R6", "R8"),
        patches=(
            SourcePatch(
                module="raft.store.node_store",
                within="NodeStore.end_cleanly",
                before="""
                persist_rest()
                write_snapshot()
                self.write_checkpoint(commit_index, applied_index, clean=True)
                """,
                after="""
                self.write_checkpoint(commit_index, applied_index, clean=True)
                persist_rest()
                write_snapshot()
                """,
            ),
        ),
    ),
    Mutant(
        name="one slot written",
        breaks="a mark that was lowered has its old claim in the other slot",
        expected=("recovery", "R5", "R9"),
        patches=(
            SourcePatch(
                module="raft.log.slot_file",
                within="SlotFile.save",
                before="for _ in range(2):",
                after="for _ in range(1):",
            ),
        ),
    ),
    Mutant(
        name="snapshot without its chain",
        breaks="a snapshot does not say which entry it ends with",
        expected=("R6", "snapshot", "R5", "recovery"),
        patches=(
            SourcePatch(
                module="raft.snapshots.snapshot",
                within="encode_header",
                before="last.chain,",
                after="0,",
            ),
        ),
    ),
    Mutant(
        name="checkpoint believed as it is found",
        breaks="a hint of which a failure of power left half is read all the same",
        expected=("exception", "checkpoint before durable", "R8", "R6", "recovery"),
        patches=(
            SourcePatch(
                module="raft.store.checkpoint",
                within="_decode",
                before="""
                values = json.loads(text)
                if values.pop("crc32") != _crc32(values):
                    raise ValueError("the CRC32 does not match")
                """,
                after="""
                digits = bytes(byte for byte in text if 48 <= byte < 58) or b"0"
                values = dict.fromkeys(("incarnation", "applied_index"), 0)
                values |= {"group": "sim", "clean": False, "commit_index": int(digits[-4:])}
                names = text.split(b'"node": "')
                values["node"] = names[1].split(b'"')[0].decode() if len(names) > 1 else ""
                """,
            ),
        ),
    ),
    Mutant(
        name="entries acknowledged that there was no room for",
        breaks="a follower without room answers as if it had taken what the leader sent",
        expected=("acknowledged before durable", "R9", "R8"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="entries = entries[:held_count]",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="room found again is not heard of",
        breaks="a log that was full once takes nothing any more",
        expected=("liveness",),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._take",
                before="self._follower_role.writable = writable",
                after="self._follower_role.writable = self._follower_role.writable and writable",
            ),
        ),
    ),
    Mutant(
        name="replay that ended is not heard of",
        breaks="a node that was behind once neither campaigns nor takes leadership over",
        expected=("liveness",),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._take",
                before="self._timer.is_replaying = replaying",
                after="self._timer.is_replaying = self._timer.is_replaying or replaying",
            ),
        ),
    ),
    Mutant(
        name="messages leave with the round before theirs",
        breaks="what waits for the next round of fsync leaves with the one under way",
        expected=(
            "vote before durable",
            "sent before durable",
            "acknowledged before durable",
        ),
        patches=(
            SourcePatch(
                module="raft.node.group_commit",
                within="GroupCommit.defer",
                before="last = self._next or self._running",
                after="last = self._running or self._next",
            ),
        ),
    ),
    Mutant(
        name="start acts on what is in the page cache alone",
        breaks="what a killed process wrote is believed, and a failure of power takes it back",
        expected=("R3", "R2", "R9", "recovery", "snapshot", "sent before durable"),
        patches=(SETTLE_UNSYNCED,),
    ),
    Mutant(
        name="name of a replaced file not durable",
        breaks="a small file that was replaced is the old one again after a failure of power",
        expected=("R3", "R2", "recovery", "R9", "exception"),
        patches=(
            SourcePatch(
                module="raft.log.durable_record",
                within="adopt",
                before="disk.sync_directory(_parent(path))",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="snapshot's name believed at a start",
        breaks="the log is shortened for a snapshot whose name a failure of power takes back",
        expected=("recovery", "snapshot"),
        patches=(
            SourcePatch(
                module="raft.snapshots.snapshot",
                within="SnapshotFiles.__init__",
                before="""
                disk.sync_directory(directory)
                """,
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="entry counts before its hard state",
        breaks="the log claims an entry of a term that a restart may not know of",
        expected=("recovery", "R3", "R2", "assert"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._before_claim",
                before="self._hard_state.require(term)",
                after="pass",
            ),
        ),
    ),
)
