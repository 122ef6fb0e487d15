"""Planted bugs in what consumers share (offset resets, locks of queues, pops in order), and in what
administrators change.

Over 500 lines, because it is one flat list of planted bugs and nothing else.
"""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["CONSUMER_MUTANTS"]

_RESET_MUTANTS = (
    Mutant(
        name="reset sends a consumer back twice",
        kind="group",
        breaks="a pull from where a reset sent it is answered before the reset is cleared",
        published="this broker, until the simulator reset offsets",
        expected=("resets",),
        patches=(
            SourcePatch(
                module="broker.pull.pull",
                within="PullProcessor._is_reset",
                before="self._clear_reset(pull, may_hold=may_hold)",
                after="""
                command = ClearResetCommand(pull.group, pull.topic, pull.queue_id, offset)
                propose(self._leadership, [command])
                return False
                """,
            ),
        ),
    ),
    Mutant(
        name="reset forgotten with its first answer",
        kind="group",
        breaks="a consumer that does not hear the answer is never sent back",
        published="RocketMQ's ConsumerOffsetManager.queryThenEraseResetOffset",
        expected=("resets",),
        patches=(
            SourcePatch(
                module="broker.pull.pull",
                within="PullProcessor._send_back",
                before="""
                self._answer(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset)
                """,
                after="""
                command = ClearResetCommand(pull.group, pull.topic, pull.queue_id, offset)
                propose(self._leadership, [command])
                self._answer(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset)
                """,
            ),
        ),
    ),
    Mutant(
        name="pending resets not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot sends nobody back",
        expected=("resets", "R14", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"resets": self.resets,',
                after='"resets": OffsetResets(),',
            ),
        ),
    ),
    Mutant(
        name="commit of a member undoes a pending reset",
        kind="group",
        breaks="the group's offset is a member's again, which has not heard of the reset",
        published="RocketMQ, where a member commits before it has followed",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState._apply_command",
                before="if not self.resets or self.resets.get(*key) is None:",
                after="if True:",
            ),
        ),
    ),
    Mutant(
        name="reset answered when proposed",
        kind="group",
        breaks="an administrator is told of a reset that a failover loses",
        expected=("answered",),
        patches=(
            SourcePatch(
                module="broker.admin.offset_reset",
                within="OffsetResetProcessor.reset",
                before="commit(leadership, request, [ResetCommand(group, name, rows)], answer=answer)",
                after="""
                answer()
                commit(
                    leadership,
                    request,
                    [ResetCommand(group, name, rows)],
                    answer=lambda: None,
                )
                """,
            ),
        ),
    ),
)

_LOCK_MUTANTS = (
    Mutant(
        name="owners of queues not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot gives a queue to a second client",
        published="RocketMQ's RebalanceLockManager, after a failover",
        expected=("locks", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"owners": self.queue_owners,',
                after='"owners": QueueOwners(),',
            ),
        ),
    ),
    Mutant(
        name="leases are over when leadership begins",
        kind="group",
        breaks="a new leader takes an owner that it did not see renew for one that is gone",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks.begin",
                before="self._began_ms = now_ms",
                after="self._began_ms = now_ms - 100_000",
            ),
        ),
    ),
    Mutant(
        name="queue of a silent owner given away at once",
        kind="group",
        breaks="a second client gets a queue while the first believes in its lease",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks._is_over",
                before="lease_ms = self._lease_ms if is_member else self._lease_of_the_gone_ms",
                after="lease_ms = 1_000",
            ),
        ),
    ),
    Mutant(
        name="lease of a gone owner never over",
        kind="group",
        breaks="nobody is ever given the queues of a client that died",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks._is_over",
                before="lease_ms = self._lease_ms if is_member else self._lease_of_the_gone_ms",
                after="lease_ms = 10**12",
            ),
        ),
    ),
    Mutant(
        name="lease shorter than what its owner believes",
        kind="group",
        breaks="a paused client that comes back believes in a lease that another has by then",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks._is_over",
                before="lease_ms = self._lease_ms if is_member else self._lease_of_the_gone_ms",
                after="lease_ms = 20_000",
            ),
        ),
    ),
    Mutant(
        name="lock answered when proposed",
        kind="group",
        breaks="a client consumes a queue that the log does not give it",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.groups.locks",
                within="LockProcessor.lock",
                before="""
                if not claims.free:
                    answer(claims.held)
                    return
                """,
                after="""
                answer(claims.held + claims.free)
                if not claims.free:
                    return
                """,
            ),
            SourcePatch(
                module="broker.groups.locks",
                within="LockProcessor.lock",
                before="answer=lambda: answer(claims.held + claims.free),",
                after="answer=lambda: None,",
            ),
        ),
    ),
    Mutant(
        name="queue given twice while it is being given",
        kind="group",
        breaks="two clients ask at once, and both get the queue",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks.claim",
                before="""
                if key in self._under_way:
                    continue
                """,
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="unlock frees a queue that is another's by now",
        kind="group",
        breaks="an unlock that comes late takes the queue from its new owner",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.state.queue_owners",
                within="Owner.releases",
                before="return client_id == self.client_id and claim >= self.claim",
                after="return client_id != self.client_id or claim >= self.claim",
            ),
        ),
    ),
    Mutant(
        name="owner told that he holds what he is giving up",
        kind="group",
        breaks="a lock is renewed from memory while the unlock before it is under way",
        published="this broker, until the simulator's clients asked again without an answer",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.groups.locks",
                within="LockProcessor.unlock",
                before="self._locks.change(group, queues)",
                after="self._locks.change(group, queues := [])",
            ),
            SourcePatch(
                module="broker.leader.rebalance_lock",
                within="RebalanceLocks.claim",
                before="if owner == (client_id, claim):",
                after="if owner is not None and owner.client_id == client_id:",
            ),
        ),
    ),
    Mutant(
        name="an unlock takes back a newer claim",
        kind="group",
        breaks="an unlock that comes late frees what its client has been granted again since",
        published="this broker's clients, as RocketMQ's, until they counted their claims",
        expected=("locks",),
        patches=(
            SourcePatch(
                module="broker.state.queue_owners",
                within="Owner.releases",
                before="return client_id == self.client_id and claim >= self.claim",
                after="return client_id == self.client_id",
            ),
        ),
    ),
)

_ORDER_MUTANTS = (
    Mutant(
        name="popped in order while others hold the queue",
        kind="group",
        breaks="a message is given while the one before it is with somebody else",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.pop",
                within="PopProcessor._take",
                before="if key in self._ahead or self._is_blocked(pop, key, catch.pop_ms):",
                after="if key in self._ahead:",
            ),
        ),
    ),
    Mutant(
        name="popped in order while its postponement is under way",
        kind="group",
        breaks="its holder is told that it comes back later, and somebody else gets it",
        published="this broker, until the simulator popped in order",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.ordered_queues",
                within="OrderedQueues._is_busy",
                before="busy = self._leadership.pop_busy",
                after="return False",
            ),
        ),
    ),
    Mutant(
        name="acknowledgement in order passes over what is missing",
        kind="group",
        breaks="the group goes on behind the last message that is done",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.state.pop_order",
                within="OrderSet.next_offset",
                before="left = (offset for offset in self.offsets if offset not in self.done)",
                after="left = (offset + 1 for offset in reversed(self.offsets) if offset in self.done)",
            ),
        ),
    ),
    Mutant(
        name="messages popped in order not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot gives them to somebody else",
        expected=("G5", "R14", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.pop_state",
                within="PopState.restore",
                before="self.orders.restore(orders)",
                after="self.orders.restore([])",
            ),
        ),
    ),
    Mutant(
        name="older handle acknowledges what was popped in order again",
        kind="group",
        breaks="who comes too late ends the holding of whoever has it now",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.state.pop_order",
                within="OrderTable._current",
                before="if found is None or found.pop_ms != pop_ms or offset not in found.offsets:",
                after="if found is None or offset not in found.offsets:",
            ),
        ),
    ),
    Mutant(
        name="acknowledgement in order answered when proposed",
        kind="group",
        breaks="a failover gives a message again whose acknowledgement was answered",
        expected=("answered", "G5"),
        patches=(
            SourcePatch(
                module="broker.pop.pop_ack",
                within="PopAckProcessor.ack",
                before="lambda: self._acked(request, [key] if handle.is_order else []),",
                after="lambda: None,",
            ),
            SourcePatch(
                module="broker.pop.pop_ack",
                within="PopAckProcessor.ack",
                before="key, offset, handle = self._held(header, request, ends_at=1)",
                after="""
                key, offset, handle = self._held(header, request, ends_at=1)
                self._acked(request, [key] if handle.is_order else [])
                """,
            ),
        ),
    ),
)

_ADMIN_MUTANTS = (
    Mutant(
        name="offset query overtakes the commit before it",
        kind="group",
        breaks="who commits oneway and asks at once is told what was before",
        published="this broker, until clients of others waited for it",
        expected=("G7",),
        patches=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._query",
                before="""
                await self._leadership.proposer.offset_commits_ended(
                    header.consumer_group, header.topic, header.queue_id
                )
                """,
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="half resumed twice",
        kind="group",
        breaks="a transaction that was given up can be committed beside its second half",
        expected=("G4",),
        patches=(
            SourcePatch(
                module="broker.admin.maintenance",
                within="MaintenanceProcessor.resume_half",
                before="""
                record.queue_offset in resumed
                or leadership.proposer.in_flight_key(pending.dedupe_key) is not None
                """,
                after="False",
            ),
        ),
    ),
    Mutant(
        name="resumed halves not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot resumes a half a second time",
        expected=("G4", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"resumed": self.resumed,',
                after='"resumed": ResumedHalves(),',
            ),
        ),
    ),
    Mutant(
        name="users not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot knows no user",
        expected=("registry", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"users": self.users,',
                after='"users": UserTable(),',
            ),
        ),
    ),
    Mutant(
        name="deleted user keeps what was granted",
        kind="group",
        breaks="a user that is made again may do what its predecessor was allowed",
        expected=("registry", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.user_table",
                within="UserTable.apply",
                before="self._entries.pop(command.name, None)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="deleted group leaves its offsets",
        kind="group",
        breaks="the next group of that name goes on where the deleted one was",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState._delete_group",
                before="if command.clean_offset:",
                after="if False:",
            ),
        ),
    ),
    Mutant(
        name="unknown outcome of a request handed on called a failure",
        kind="group",
        breaks="a client is told that its message is surely not stored, and it is",
        expected=("G7", "G5"),
        patches=(
            SourcePatch(
                module="broker.request.forwarding",
                within="Forwarding._try",
                before="""
                request.reply(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
                """,
                after="request.reply(ResponseCode.SYSTEM_BUSY, str(error))",
            ),
        ),
    ),
    Mutant(
        name="queue that a topic lost takes sends",
        kind="group",
        breaks="a send to a queue that no reader knows any more is stored and acknowledged",
        expected=("shapes",),
        patches=(
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor.store",
                before="elif queue_id >= max(topic.read_queue_count, topic.write_queue_count):",
                after="elif False:",
            ),
        ),
    ),
    Mutant(
        name="changed setting forgotten by a restart",
        kind="group",
        breaks="what an administrator was told is kept lives in the process alone",
        expected=("settings",),
        patches=(
            SourcePatch(
                module="broker.admin.settings",
                within="SettingsProcessor.update",
                before="save_settings(replica.config, values)",
                after="pass",
            ),
        ),
    ),
)

CONSUMER_MUTANTS = _RESET_MUTANTS + _LOCK_MUTANTS + _ORDER_MUTANTS + _ADMIN_MUTANTS
