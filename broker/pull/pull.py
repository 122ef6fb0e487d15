"""PULL_MESSAGE (and LITE_PULL_MESSAGE): stored bytes from a queue offset on.

Place in the data path: `broker.queues.queue_reader` finds the records; a pull that finds nothing is
held (`broker.request.long_polling`) if its flags ask for that.

Only committed messages have units, and what is committed never changes, so a follower may answer
with what it has. What depends on where the queue *ends* (an offset that is out of range), and where
a reset sends the group, is only reported by a leader that has just proved itself (ReadIndex): a
wrong word there would rewind or skip a consumer (promise G6). A replica that does not lead yet, or
knows of entries that it has not applied, first applies them: a reset of the group's offset may be
among them. It can't wait for entries that it does not know of: such a pull shows what was true a
moment ago.

Rules: order of checks, store results and codes as in RocketMQ's PullMessageProcessor and
DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from broker.entry.payload import ClearResetCommand, OffsetCommand
from broker.entry.topics import PERM_READ, Topic, is_group_name
from broker.pull.slave_reads import SlaveReads
from broker.queues.message_filter import EVERYTHING, TAG, FilterError, MessageFilter
from broker.queues.queue_reader import read_matching
from broker.queues.sql import filter_of
from broker.request.commit import commit, propose
from broker.request.deleted_topics import RetryFilter
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.long_polling import HeldPull
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from raft.messages import Index
from raft.replicated_log import NotLeaderError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import LANGUAGE_PYTHON
from remoting.protocol.headers import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullMessageRequestHeader,
)

__all__ = ["PullProcessor"]

_SUSPEND_MS_MAX: Final = 60_000
_TOO_EARLY_MAX: Final = 1_024
_TOO_EARLY_MS_MAX: Final = 5_000  # the shortest time that RocketMQ's clients give a pull is 10 s
_BEHIND_MS_MAX: Final = 2_000  # a replica that lacks something for longer shows what it has
_RETRY_S: Final = 0.05
_NOT_HERE_MS: Final = 1_000  # for which a slave holds a pull for what it has not
_SCAN_UNITS_MAX: Final = 8_192  # read per pull when a filter matches little
_SCAN_RECORDS_MAX: Final = 800  # as many as RocketMQ, where the filter reads records


@dataclass(slots=True)
class _Pull:
    """One pull: its parameters, checked, and its progress."""

    request: Request
    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    size_max: int
    suspend_ms: int
    filter: MessageFilter
    header: PullMessageRequestHeader | None  # None: the filter is the pull's own
    held_until_ms: int = 0  # 0: it was not held yet


class PullProcessor:
    """Handler of pulls: answers at once, or holds a pull until messages come."""

    def __init__(
        self, replica: Replica, leadership: Leadership, desk: Desk, tasks: TaskOwner
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._tasks = tasks
        self._slave_reads = SlaveReads(replica)
        self._too_early = 0  # pulls that wait for what their replica lacks
        self._resets_shown: dict[tuple[str, str, int], int] = {}  # pending; a pull was answered so

    def handle(self, header: PullMessageRequestHeader, request: Request) -> None:
        """Answer with messages, at once or after having been held. Raises RefusedError."""
        if not self._leadership.ready and self._too_early < _TOO_EARLY_MAX:
            point = self._replica.log.status().commit_index
            if self._is_behind(point) or not self._knows_topic(header.topic):
                self._too_early += 1
                self._tasks.answer(request, lambda: self._when_known(header, request, point))
                return
        self._begin(header, request)

    def _begin(self, header: PullMessageRequestHeader, request: Request) -> None:
        pull = self._checked(header, request)
        if header.sys_flag & PULL_COMMIT_OFFSET:
            self._commit_offset(pull, header.commit_offset)
        self._run(pull, may_hold=pull.suspend_ms > 0)

    def _knows_topic(self, topic: str) -> bool:
        """Return whether this replica can say if `topic` exists: a follower may not know it yet."""
        return self._leadership.ready or topic in self._replica.state.topics

    def _is_behind(self, point: Index) -> bool:
        """Return whether this replica has not applied all that it knows, or is about to know, as
        committed."""
        if self._leadership.ready:
            return False
        status = self._replica.log.status()
        leads = status.leader_id == self._replica.config.node
        return status.applied_index < point or (leads and not status.ready)

    async def _when_known(
        self, header: PullMessageRequestHeader, request: Request, point: Index
    ) -> None:
        """Wait for what is committed, for a moment; and for the topic, or for this node to lead.

        A replica that has restarted has to learn first what was in its log. Refusing meanwhile is
        not enough: Java's lite pull consumers forget a `seek` where the pull after it fails.
        """
        replica = self._replica
        begun_ms = replica.monotonic_ms()
        until_ms = begun_ms + _TOO_EARLY_MS_MAX
        caught_up_ms = begun_ms + _BEHIND_MS_MAX
        try:
            while self._is_behind(point) and replica.monotonic_ms() < caught_up_ms:
                if request.connection.closed:
                    return
                await asyncio.sleep(_RETRY_S)
            while not self._knows_topic(header.topic):
                if replica.monotonic_ms() >= until_ms or request.connection.closed:
                    raise self._leadership.not_leader()
                await asyncio.sleep(_RETRY_S)
        finally:
            self._too_early -= 1
        self._begin(header, request)

    # Checks ------------------------------------------------------------------------------------

    def _checked(self, header: PullMessageRequestHeader, request: Request) -> _Pull:
        """Return the pull, its parameters within their limits. Raises RefusedError."""
        config = self._replica.config
        topic = self._readable(header.consumer_group, header.topic)
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}] "
                f"consumer:[{request.connection.peer}]",
            )
        suspend_ms = header.suspend_timeout_ms if header.sys_flag & PULL_SUSPEND else 0
        size_max = header.max_msg_bytes or 0
        return _Pull(
            request=request,
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            offset=header.queue_offset,
            count_max=max(1, min(header.max_msg_nums, config.pull_count_max)),
            size_max=size_max if 0 < size_max < config.pull_size_max else config.pull_size_max,
            suspend_ms=max(0, min(suspend_ms, _SUSPEND_MS_MAX)),
            filter=self._filter(header),
            header=None if header.sys_flag & PULL_SUBSCRIPTION else header,
        )

    def _readable(self, group: str, topic_name: str) -> Topic:
        """Return the topic. Raises RefusedError where the group may not read it, or nobody may."""
        replica = self._replica
        if not replica.config.broker_permission & PERM_READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{replica.config.advertised}] pulling message is forbidden",
            )
        group_config = replica.state.groups.get(group)
        if group_config is not None and group_config.get("consumeEnable") is False:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        topic = replica.state.topics.get(topic_name)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic_name}] not exist, apply first please!",
            )
        if not topic.readable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden"
            )
        return topic

    def _filter(self, header: PullMessageRequestHeader) -> MessageFilter:
        """Return the filter that the pull carries, or that its group's last heartbeat gave. Raises
        RefusedError."""
        group, topic = header.consumer_group, header.topic
        if topic.startswith("%RETRY%"):
            # Retried messages pass the group's filter again (filterSupportRetry).
            return RetryFilter(self._replica)
        if header.sys_flag & PULL_SUBSCRIPTION:
            return self._carried_filter(header.expression_type, header.subscription)
        clients = self._desk.clients
        known = clients.subscriptions(group).get(topic)
        if known is None and not clients.consumer_ids(group):
            # No member of the group has sent a heartbeat since this replica started. RocketMQ
            # refuses with 24 until a member's next one, half a minute at worst.
            if header.expression_type == TAG:
                return EVERYTHING
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if clients.is_broadcasting(group) and not self._may_broadcast(group):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
            )
        if known is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if known.version < header.sub_version:
            # The consumer has a newer subscription than its last heartbeat reported. RocketMQ
            # refuses with 25 until the next one, half a minute at worst, and Java clients get there
            # by merely joining. Every client compares tags again, so more than it wants is right;
            # what an expression leaves out nobody else would.
            if known.kind == TAG == (header.expression_type or TAG):
                return EVERYTHING
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        self._check_kind(known.kind)
        if known.filter is None:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        return known.filter

    def _may_broadcast(self, group: str) -> bool:
        config = self._replica.state.groups.get(group)
        return config is None or config.get("consumeBroadcastEnable") is not False

    def _carried_filter(self, kind: str | None, expression: str | None) -> MessageFilter:
        try:
            wanted = filter_of(kind, expression)
        except FilterError as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error
        self._check_kind(kind or TAG)
        return wanted

    def _check_kind(self, kind: str) -> None:
        if kind != TAG and not self._replica.config.enable_property_filter:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )

    def _commit_offset(self, pull: _Pull, offset: int) -> None:
        """Commit the offset that rides on the pull: best effort, as RocketMQ's oneway commit is."""
        leadership, state = self._leadership, self._replica.state
        key, offsets = (pull.group, pull.topic, pull.queue_id), state.consumer_offsets
        stays = offsets.get(key) == offset and not leadership.proposer.is_offset_in_flight(*key)
        if offset < 0 or stays or not leadership.ready or not is_group_name(pull.group):
            return
        is_full = key not in offsets and len(offsets) >= state.limits.consumer_offsets_max
        if is_full or leadership.proposer.is_being_deleted(pull.topic):
            return
        # Where too many proposals wait, the consumer commits again with its next pull.
        propose(leadership, [OffsetCommand(*key, offset)])

    # Reading -----------------------------------------------------------------------------------

    def _run(self, pull: _Pull, *, may_hold: bool) -> None:
        replica = self._replica
        if replica.state.resets:
            if self._is_reset(pull, may_hold=may_hold):
                return
        elif self._resets_shown:
            self._resets_shown.clear()
        queue = replica.queues.get(pull.topic, pull.queue_id)
        if queue.min_offset <= pull.offset < queue.next_offset:
            self._answer_found(pull)
        elif pull.offset == queue.next_offset:
            if not (may_hold and self._hold(pull)):
                self._answer(
                    pull,
                    ResponseCode.PULL_NOT_FOUND,
                    "OFFSET_OVERFLOW_ONE" if pull.offset else "NO_MESSAGE_IN_QUEUE",
                    pull.offset,
                )
        else:
            self._tasks.answer(pull.request, lambda: self._out_of_range(pull, may_hold=may_hold))

    def _is_reset(self, pull: _Pull, *, may_hold: bool) -> bool:
        """Return whether a reset of the group's offset decides what becomes of the pull: it is
        answered with the offset to go on at, and the next one at that offset clears the reset.

        The first pull is answered so at that very offset, too: its member may have messages before
        it at hand, and has to drop them. It gets its messages only once the clearing is committed:
        while it is on its way, the pull behind them would be sent back again, by any leader.
        """
        leadership = self._leadership
        key = (pull.group, pull.topic, pull.queue_id)
        offset = self._replica.state.resets.get(*key)
        if offset is None:
            self._resets_shown.pop(key, None)
            return False
        if not leadership.ready:  # from here it would get what the leader sends it back for
            pull.request.refuse(leadership.not_leader())
        elif pull.offset != offset or self._resets_shown.get(key) != offset:
            self._tasks.answer(pull.request, lambda: self._send_back(pull, may_hold=may_hold))
        else:
            self._clear_reset(pull, may_hold=may_hold)
        return True

    async def _send_back(self, pull: _Pull, *, may_hold: bool) -> None:
        """Answer with the offset of the group's reset, once this leader has proved itself: one that
        was stopped, and is deposed, would send a consumer back that has followed the reset."""
        key = (pull.group, pull.topic, pull.queue_id)
        offset = self._replica.state.resets.get(*key)
        try:
            await self._replica.log.read_index()
        except NotLeaderError:
            pull.request.refuse(self._leadership.not_leader())
            return
        if offset is None or self._replica.state.resets.get(*key) != offset:
            self._run(pull, may_hold=may_hold)
        else:
            self._resets_shown[key] = offset
            self._answer(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset)

    def _clear_reset(self, pull: _Pull, *, may_hold: bool) -> None:
        command = ClearResetCommand(pull.group, pull.topic, pull.queue_id, pull.offset)
        try:
            commit(
                self._leadership,
                pull.request,
                [command],
                # Not straight to the messages: a newer reset may be there by now.
                answer=lambda: self._again(pull, may_hold=may_hold),
            )
        except RefusedError as refused:
            pull.request.refuse(refused)

    def _answer_found(self, pull: _Pull) -> None:
        """Answer with the records from the offset on that match, within count and size."""
        replica = self._replica
        queue = replica.queues.get(pull.topic, pull.queue_id)
        found = read_matching(
            replica.log,
            queue,
            pull.queue_id,
            pull.offset,
            count_max=pull.count_max,
            size_max=pull.size_max,
            scan_max=_SCAN_RECORDS_MAX if pull.filter.reads_properties else _SCAN_UNITS_MAX,
            wanted=pull.filter,
        )
        at = found.next_offset
        if found.records:
            self._desk.stats.got(pull.group, pull.topic, len(found.records), found.size)
            body = b"".join(found.records)
            self._answer(pull, ResponseCode.SUCCESS, "FOUND", at, body, has_read=True)
        elif found.unreadable is not None:
            self._answer(pull, found.unreadable.code, found.unreadable.remark, at)
        elif not (at == queue.next_offset and self._hold_again(pull, at)):
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            self._answer(pull, code, "NO_MATCHED_MESSAGE", at, has_read=True)

    def _hold(self, pull: _Pull) -> bool:
        """Hold the pull; False where too many are held, or it retains too much."""
        texts = pull.header and (pull.header.subscription or "", pull.header.expression_type or "")
        if not pull.request.shrink(pull.group, *(texts or ())):
            return False
        self._note_progress(pull, pull.offset)
        pull.held_until_ms = pull.held_until_ms or self._replica.monotonic_ms() + pull.suspend_ms
        return self._desk.long_polling.hold(
            pull.topic,
            pull.queue_id,
            HeldPull(
                offset=pull.offset,
                codes=pull.filter.codes,
                deadline_ms=pull.held_until_ms,
                run_again=lambda: self._again(pull),
                size=pull.filter.size if pull.header is None else 0,
            ),
        )

    def _hold_again(self, pull: _Pull, at: int) -> bool:
        """Hold a pull that has time left again, at `at`: it was woken by messages that it does not
        want. Properties stand in the record alone, so any arrival wakes a pull that filters by
        them."""
        if self._replica.monotonic_ms() >= pull.held_until_ms:
            return False
        pull.offset = at
        return self._hold(pull)

    def _again(self, pull: _Pull, *, may_hold: bool = False) -> None:
        """Answer a pull that has waited; what it may, or its group wants, may have changed."""
        if pull.request.connection.closed:
            return
        try:
            self._readable(pull.group, pull.topic)
            if pull.header is not None:
                pull.filter = self._filter(pull.header)
        except RefusedError as refused:
            pull.request.refuse(refused)
            return
        self._run(pull, may_hold=may_hold)

    async def _out_of_range(self, pull: _Pull, *, may_hold: bool) -> None:
        """Answer with where the queue really begins or ends, if this is the leader. Else hold what
        may come; whoever wants anything else has to pull from the leader: it would go on pulling
        here, for what never comes."""
        replica = self._replica
        if self._slave_reads.is_slave:
            await self._not_here(pull, may_hold=may_hold)
            return
        try:
            await replica.log.read_index()
        except NotLeaderError:
            is_beyond = pull.offset > replica.queues.get(pull.topic, pull.queue_id).next_offset
            if not (is_beyond and may_hold and self._hold(pull)):
                pull.request.refuse(self._leadership.not_leader())
            return
        queue = replica.queues.get(pull.topic, pull.queue_id)
        if queue.min_offset <= pull.offset <= queue.next_offset and queue.next_offset:
            self._run(pull, may_hold=may_hold)
        elif queue.next_offset == 0:
            code = ResponseCode.PULL_OFFSET_MOVED if pull.offset else ResponseCode.PULL_NOT_FOUND
            self._answer(pull, code, "NO_MESSAGE_IN_QUEUE", 0)
        elif pull.offset < queue.min_offset:
            self._answer(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", queue.min_offset)
        else:
            self._answer(
                pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", queue.next_offset
            )

    async def _not_here(self, pull: _Pull, *, may_hold: bool) -> None:
        """Answer, at a slave, a pull for what it has not: at the same offset, after a while.

        Only the master knows where a queue begins and ends. A slave that is behind it, or keeps
        less, would set a consumer back, or let it skip messages that the master still has. The
        wait bounds how often a consumer asks that knows no other broker.
        """
        queue = self._replica.queues.get(pull.topic, pull.queue_id)
        if self._slave_reads.has_master and pull.request.command.language == LANGUAGE_PYTHON:
            pull.request.refuse(self._leadership.not_leader())  # ours follow the hint at once
            return
        is_beyond = pull.offset > queue.next_offset
        remark = "OFFSET_OVERFLOW_BADLY" if is_beyond else "OFFSET_TOO_SMALL"
        if may_hold and not pull.held_until_ms:
            until_ms = self._replica.monotonic_ms() + min(pull.suspend_ms, _NOT_HERE_MS)
            pull.held_until_ms = until_ms
            if self._hold(pull):
                return
        self._answer(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, pull.offset)

    def _note_progress(self, pull: _Pull, next_offset: int) -> None:
        self._desk.pull_offsets.pulled(pull.group, pull.topic, pull.queue_id, next_offset)

    def _answer(
        self,
        pull: _Pull,
        code: ResponseCode,
        remark: str,
        next_offset: int,
        body: bytes = b"",
        *,
        has_read: bool = False,
    ) -> None:
        """Answer; `has_read`: messages before `next_offset` were read, matching or not."""
        queue = self._replica.queues.get(pull.topic, pull.queue_id)
        behind_size = self._slave_reads.behind_size(queue, next_offset) if has_read else 0
        self._note_progress(pull, next_offset)
        if code != ResponseCode.SUCCESS:
            self._desk.stats.missed()
        pull.request.reply(
            code,
            remark,
            {
                "suggestWhichBrokerId": str(
                    self._slave_reads.suggested_id(pull.group, behind_size)
                ),
                "nextBeginOffset": str(next_offset),
                "minOffset": str(queue.min_offset),
                "maxOffset": str(queue.next_offset),
                "ledgermqTerm": str(self._leadership.term),
            },
            body,
        )
