"""POP_MESSAGE: messages for a group, held for this consumer until they are acknowledged.

Place in the data path: reads the group's queues (`broker.pop.reader`), proposes what was taken as
one entry, and answers once that is committed: no failover gives a message to two consumers. A pop
that finds nothing is held (`broker.request.pop_polling`), and run again as one that comes then:
what its group may pop is checked each time.

While a pop of a queue is under way, the next one begins behind it (`_ahead`), without waiting; its
command is void where the one before came to nothing. In order, one at a time.

Rules: order of checks, codes and the share of retries as in RocketMQ's PopMessageProcessor, but for
its check of bornTime: a client whose clock is half a second behind would never find a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.entry.payload import ClearResetCommand, Command
from broker.entry.pop_commands import PopCommand, PopOrderCommand
from broker.entry.topics import Topic, TopicNameError, check_group_name
from broker.pop.ordered_queues import OrderedQueues
from broker.pop.reader import (
    Slice,
    as_first_sent,
    next_start,
    read_slice,
    readable_topic,
    require_readable_broker,
    start_of,
)
from broker.queues.message_filter import EVERYTHING, TAG, FilterError, MessageFilter
from broker.queues.sql import filter_of
from broker.request.commit import commit
from broker.request.deleted_topics import first_of_living_topic
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.pop_polling import HeldPop
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.pop_state import QueueKey
from remoting.protocol.codes import ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.protocol.headers import PopMessageRequestHeader
from remoting.protocol.pop_handle import ORDER_REVIVE_QUEUE, PopHandle, retry_flag

__all__ = ["PopProcessor"]

_COUNT_MAX: Final = 32
_INVISIBLE_MS_MAX: Final = 12 * 3_600_000
_POLL_MS_MAX: Final = 60_000
_RETRIES_FIRST_PERCENT: Final = 20
_TOPIC_SIZE_MAX: Final = 255
_HELD_PER_QUEUE_MAX: Final = 10_000
_HELD_MAX: Final = 200_000
_HELD_PER_GROUP_MAX: Final = _HELD_MAX // 2  # one that never acknowledges leaves others as much
_HELD_WAIT_MS: Final = 1_000  # at a queue of which the group holds as much as it may
_EXAMINED_MAX: Final = 2_048  # units of all queues, where a filter lets little pass
_QUEUES_TAKEN_MAX: Final = 64  # of which one pop may move the group's offset
_ATTEMPT_ID_SIZE_MAX: Final = 1_024


@dataclass(slots=True, kw_only=True)
class _Pop:
    """One pop: its parameters, checked."""

    request: Request
    group: str
    topic: Topic
    queue_id: int  # -1: any
    count_max: int
    invisible_ms: int
    deadline_ms: int
    from_end: bool
    is_order: bool
    attempt_id: str
    filter: MessageFilter
    wake_ms: int | None = None  # when a queue that is blocked now may be popped in order


@dataclass(slots=True, kw_only=True)
class _Taken:
    """Messages that were taken from one queue, or at least examined."""

    key: QueueKey
    expected: int
    slice: Slice


@dataclass(slots=True)
class _Catch:
    """Messages that one pop takes, from all queues."""

    pop_ms: int
    taken: list[_Taken] = field(default_factory=list)
    count: int = 0
    size: int = 0
    rest: int = 0  # messages that are left
    examined: int = 0  # units
    bound: str | None = None  # what keeps the group from messages that there are


class PopProcessor:
    """Handler of pops: answers once what it took is committed, or holds a pop."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._ordered = OrderedQueues(replica, leadership, desk)
        self._ahead: dict[QueueKey, tuple[int, int]] = {}  # next offset, pops under way

    def handle(self, header: PopMessageRequestHeader, request: Request) -> None:
        """Take messages for the consumer, at once or after having been held. Raises
        RefusedError."""
        self._run(self._checked(header, request))

    # Checks ------------------------------------------------------------------------------------

    def _checked(self, header: PopMessageRequestHeader, request: Request) -> _Pop:
        """Return the pop, its parameters within their limits. Raises RefusedError."""
        replica, invisible_ms = self._replica, header.invisible_ms
        poll_ms = max(0, min(header.poll_ms, _POLL_MS_MAX))
        require_readable_broker(replica, "pop")
        if header.max_msg_nums > _COUNT_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{replica.config.advertised}] pop message's num is greater than 32",
            )
        topic = self._readable(header.consumer_group, header.topic, header.queue_id, request)
        attempt_id = header.attempt_id or ""
        if not 0 < invisible_ms <= _INVISIBLE_MS_MAX or len(attempt_id) > _ATTEMPT_ID_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {invisible_ms}, an attemptId of {len(attempt_id)} characters: not "
                f"within 1 to {_INVISIBLE_MS_MAX} and {_ATTEMPT_ID_SIZE_MAX}",
            )
        return _Pop(
            request=request,
            group=header.consumer_group,
            topic=topic,
            queue_id=header.queue_id,
            count_max=max(1, header.max_msg_nums),
            invisible_ms=invisible_ms,
            deadline_ms=replica.monotonic_ms() + poll_ms,
            from_end=header.init_mode != 0,
            is_order=header.order,
            attempt_id=attempt_id,
            filter=self._filter(header.expression_type, header.expression),
        )

    def _readable(self, group: str, name: str, queue_id: int, request: Request) -> Topic:
        """Return the topic. Raises RefusedError where the group may not pop the queue now."""
        replica = self._replica
        whose = f" consumer:[{request.connection.peer}]"
        topic = readable_topic(replica, group, name, queue_id, whose)
        try:
            check_group_name(group)
        except TopicNameError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        retry_topic = pop_retry_topic(name, group)
        if len(retry_topic) > _TOPIC_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the retry topic {retry_topic[:80]}... has more than {_TOPIC_SIZE_MAX} characters",
            )
        topics_max = replica.state.limits.topics_max
        if retry_topic not in replica.state.topics and len(replica.state.topics) >= topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        return topic

    def _filter(self, kind: str | None, expression: str | None) -> MessageFilter:
        if not expression:
            return EVERYTHING
        if (kind or TAG) != TAG and not self._replica.config.enable_property_filter:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            return filter_of(kind, expression)
        except FilterError as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error

    # Taking ------------------------------------------------------------------------------------

    def _run(self, pop: _Pop) -> None:
        leadership = self._leadership
        leadership.require_leader()
        pop.wake_ms = None
        catch = _Catch(self._replica.clock_ms())
        for topic, queue_id in self._queues(pop):
            self._take(pop, catch, (pop.group, topic, queue_id))
        if not catch.taken:
            if catch.bound is not None:
                raise RefusedError(ResponseCode.SYSTEM_BUSY, catch.bound)
            self._hold_or_answer(pop, catch)
            return
        commands = [
            command for taken in catch.taken for command in self._commands(pop, catch, taken)
        ]
        for taken in catch.taken:
            _, under_way = self._ahead.get(taken.key, (0, 0))
            self._ahead[taken.key] = (taken.slice.next_offset, under_way + 1)

        commit(
            leadership,
            pop.request,
            commands,
            answer=lambda: self._guarded(pop, lambda: self._answer(pop, catch)),
            ended=lambda _: self._landed(pop, catch),
        )

    def _queues(self, pop: _Pop) -> list[tuple[str, int]]:
        """Return the queues in the order in which they are popped: from a random one on, retries
        first now and then."""
        chance = self._desk.random.randrange(100)
        queues = [(pop.topic.name, pop.queue_id)]
        if pop.queue_id < 0:
            count = pop.topic.read_queue_count
            queues = [(pop.topic.name, (chance + at) % count) for at in range(count)]
        retry_topic = pop_retry_topic(pop.topic.name, pop.group)
        if pop.is_order or retry_topic not in self._replica.state.topics:
            return queues
        retries = [(retry_topic, 0)]
        return retries + queues if chance < _RETRIES_FIRST_PERCENT else queues + retries

    def _take(self, pop: _Pop, catch: _Catch, key: QueueKey) -> None:
        replica, state = self._replica, self._replica.state
        _, topic, queue_id = key
        expected, start = self._start(pop, key)
        if topic != pop.topic.name:
            start = first_of_living_topic(replica, pop.topic.name, topic, queue_id, start)
        left = replica.queues.get(topic, queue_id).next_offset - start
        is_full = catch.count >= pop.count_max or catch.size >= replica.config.pull_size_max
        is_full |= catch.examined >= _EXAMINED_MAX or len(catch.taken) >= _QUEUES_TAKEN_MAX
        if pop.is_order:
            if key in self._ahead or self._is_blocked(pop, key, catch.pop_ms):
                return
        elif left > 0 and state.pop.held(key) >= _HELD_PER_QUEUE_MAX:
            is_full = True
            wake_ms = replica.monotonic_ms() + _HELD_WAIT_MS
            pop.wake_ms = min(wake_ms, pop.wake_ms or wake_ms)
        if left > 0 and not is_full:
            catch.bound = self._bound(pop, expected) or catch.bound
        if left <= 0 or is_full or catch.bound is not None:
            catch.rest += max(0, left)
            return
        found = read_slice(
            replica,
            topic,
            queue_id,
            start,
            count_max=pop.count_max - catch.count,
            size_max=replica.config.pull_size_max - catch.size,
            wanted=pop.filter if topic == pop.topic.name else EVERYTHING,
        )
        catch.rest += replica.queues.get(topic, queue_id).next_offset - found.next_offset
        catch.examined += found.next_offset - found.start
        if found.next_offset == start:
            return
        catch.count += len(found.records)
        catch.size += sum(map(len, found.records))
        catch.taken.append(_Taken(key=key, expected=expected, slice=found))

    def _start(self, pop: _Pop, key: QueueKey) -> tuple[int, int]:
        """Return the group's offset as it will be (-1: none), and the offset to read at."""
        ahead = self._ahead.get(key)
        if ahead is not None:
            return ahead[0], ahead[0]
        stored = self._replica.state.consumer_offsets.get(key)
        if stored is None:
            return -1, start_of(self._replica, key, from_end=pop.from_end)
        return stored, next_start(self._replica, key, stored)

    def _bound(self, pop: _Pop, expected: int) -> str | None:
        """Return which bound of this broker a pop would pass; None: none."""
        state = self._replica.state
        if expected < 0 and len(state.consumer_offsets) >= state.limits.consumer_offsets_max:
            return f"this broker has its {state.limits.consumer_offsets_max} consumer offsets"
        held = 0 if pop.is_order else len(state.pop)
        if held >= _HELD_MAX:
            return f"{held} popped messages are held on this broker, and none is acknowledged yet"
        if held >= _HELD_PER_GROUP_MAX and state.pop.held_by(pop.group) >= _HELD_PER_GROUP_MAX:
            return f"{_HELD_PER_GROUP_MAX} popped messages are held by {pop.group}"
        return None

    def _is_blocked(self, pop: _Pop, key: QueueKey, now_ms: int) -> bool:
        wake_ms = self._ordered.wake_ms(key, pop.attempt_id, now_ms)
        if wake_ms is None:
            return False
        pop.wake_ms = min(wake_ms, pop.wake_ms or wake_ms)
        return True

    def _commands(self, pop: _Pop, catch: _Catch, taken: _Taken) -> list[Command]:
        commands: list[Command] = []
        reset = self._replica.state.resets.get(*taken.key)
        if reset is not None:
            commands.append(ClearResetCommand(*taken.key, reset))
        found = taken.slice
        if pop.is_order and found.offsets:
            commands.append(
                PopOrderCommand(
                    *taken.key,
                    taken.expected,
                    found.start,
                    catch.pop_ms,
                    pop.invisible_ms,
                    pop.attempt_id,
                    found.offsets,
                )
            )
        else:
            commands.append(
                PopCommand(
                    *taken.key,
                    taken.expected,
                    found.next_offset,
                    catch.pop_ms,
                    pop.invisible_ms,
                    found.offsets,
                )
            )
        return commands

    def _landed(self, pop: _Pop, catch: _Catch) -> None:
        """End the reservations of a pop whose proposal is no longer in flight."""
        for taken in catch.taken:
            next_offset, under_way = self._ahead[taken.key]
            if under_way == 1:
                del self._ahead[taken.key]
            else:
                self._ahead[taken.key] = (next_offset, under_way - 1)
            if pop.is_order:
                self._ordered.popped(taken.key)

    # Answering ---------------------------------------------------------------------------------

    def _answer(self, pop: _Pop, catch: _Catch) -> None:
        """Answer with the messages that this pop holds now; where it holds none, since its commands
        were void or passed over messages that it doesn't want, go on. Raises RefusedError."""
        mine = [taken for taken in catch.taken if self._is_mine(pop, catch, taken)]
        if not mine:
            if pop.request.connection.closed:  # it gets nothing of what it was woken for
                self._desk.pop_polling.wake_one(pop.topic.name, pop.group, pop.queue_id)
            self._again(pop)
            return
        state = self._replica.state.pop
        starts: list[str] = []
        offsets: list[str] = []
        counts: list[str] = []
        bodies: list[bytes] = []
        for taken in mine:
            _, topic, queue_id = taken.key
            flag = retry_flag(topic) if topic != pop.topic.name else "0"
            place = f"{flag} {queue_id}"
            starts.append(f"{place} {taken.slice.start}")
            offsets.append(f"{place} {','.join(map(str, taken.slice.offsets))}")
            self._desk.stats.got(
                pop.group,
                topic,
                len(taken.slice.offsets),
                sum(map(len, taken.slice.records)),
            )
            if flag == "0":
                bodies += taken.slice.records
            else:
                bodies += self._as_first_sent(pop, catch, taken)
            held = state.orders.get(taken.key) if pop.is_order else None
            if held is not None:
                known = dict(held.counts)
                counts += [f"{flag} qo{queue_id}%{offset} {known[offset]}" for offset in known]
                least = min(known.values()) if len(known) == len(held.offsets) else 0
                counts.append(f"{place} {least}")
        more = {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(offsets)}
        if counts:
            more["orderCountInfo"] = ";".join(counts)
        self._reply(
            pop, catch, code=ResponseCode.SUCCESS, remark="FOUND", more=more, body=b"".join(bodies)
        )
        if catch.rest > 0:
            self._desk.pop_polling.wake_one(pop.topic.name, pop.group, pop.queue_id)

    def _is_mine(self, pop: _Pop, catch: _Catch, taken: _Taken) -> bool:
        if not taken.slice.offsets:
            return False
        state, first = self._replica.state.pop, taken.slice.offsets[0]
        if pop.is_order:
            held = state.orders.get(taken.key)
            return held is not None and held.pop_ms == catch.pop_ms
        holding = state.holding(taken.key, first)
        return holding is not None and holding.pop_ms == catch.pop_ms

    def _as_first_sent(self, pop: _Pop, catch: _Catch, taken: _Taken) -> list[bytes]:
        found = taken.slice
        return [
            as_first_sent(
                record,
                pop.topic.name,
                PopHandle(
                    start_offset=found.start,
                    pop_ms=catch.pop_ms,
                    invisible_ms=pop.invisible_ms,
                    revive_queue=0,
                    retry_flag="1",
                    broker_name=self._replica.config.group,
                    queue_id=taken.key[2],
                    offset=offset,
                ),
            )
            for offset, record in zip(found.offsets, found.records, strict=True)
        ]

    def _hold_or_answer(self, pop: _Pop, catch: _Catch) -> None:
        code = ResponseCode.POLLING_TIMEOUT
        if self._replica.monotonic_ms() < pop.deadline_ms:
            held = HeldPop(
                topic=pop.topic.name,
                group=pop.group,
                queue_id=pop.queue_id,
                codes=pop.filter.codes,
                deadline_ms=pop.deadline_ms,
                wake_ms=pop.wake_ms,
                run_again=lambda: self._again(pop),
                is_closed=lambda: pop.request.connection.closed,
                size=pop.filter.size + len(pop.attempt_id),
            )
            if pop.request.shrink() and self._desk.pop_polling.hold(held):
                return
            code = ResponseCode.POLLING_FULL
        self._reply(pop, catch, code=code, remark="NO_MESSAGE_IN_QUEUE")

    def _again(self, pop: _Pop) -> None:
        """Run a pop that came earlier, by what its group may pop now: topic, permissions and number
        of queues may have changed meanwhile."""
        if not pop.request.connection.closed:
            self._guarded(pop, lambda: self._run_again(pop))

    def _run_again(self, pop: _Pop) -> None:
        self._leadership.require_leader()
        require_readable_broker(self._replica, "pop")
        pop.topic = self._readable(pop.group, pop.topic.name, pop.queue_id, pop.request)
        self._run(pop)

    def _guarded(self, pop: _Pop, act: Callable[[], None]) -> None:
        try:
            act()
        except RefusedError as refused:
            pop.request.refuse(refused)

    def _reply(
        self,
        pop: _Pop,
        catch: _Catch,
        *,
        code: ResponseCode,
        remark: str,
        more: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        fields = {
            "popTime": str(catch.pop_ms),
            "invisibleTime": str(pop.invisible_ms),
            "reviveQid": str(ORDER_REVIVE_QUEUE if pop.is_order else 0),
            "restNum": str(catch.rest),
            **(more or {}),
        }
        pop.request.reply(code, remark, fields, body)
