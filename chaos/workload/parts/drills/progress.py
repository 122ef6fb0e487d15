"""Drills of figures: how far a group is in a topic of its own, whose queues are grown and shrunk,
as every answer has it that operators look at.

Place in the data path: `drills` makes one with each new group, whose topic nobody else knows and in
no manifest is. It sends to all queues, commits, pulls, changes the numbers of queues, and asks for
GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS, QUERY_CONSUME_TIME_SPAN and GET_TOPIC_STATS_INFO;
requests go through `drill.Drill`. Times of storing are those of the records as pulled.

Source: RocketMQ AdminBrokerProcessor (getConsumeStats: read queues; fetchAllConsumeStatsInBroker
and queryConsumeTimeSpan: write queues; getTopicStatsInfo: whichever are more).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from chaos.workload.parts.common.drill import UNLISTED, Drill, Unsure, batch_fields
from chaos.workload.parts.common.shown_answers import records_of
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name
from remoting.records.message import BatchItem, encode_batch_body

__all__ = ["ProgressDrill"]

QUEUES_MAX: Final = 4
ONE_CLOCK_MS: Final = 50  # for which a broker is at one answer at most
POPPED_MAX: Final = 12
INVISIBLE_MS: Final = 6 * 3_600_000
SENT: Final = (1, 4)  # messages in one batch
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag


class ProgressDrill:
    """One topic and one group. Everything is queried from the leader, behind a read index."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._topic = f"{UNLISTED}{group}-topic"
        self._rng = drill.rng
        self._read = self._write = 0  # numbers of queues
        self._is_order = False
        self._groups = 0  # that have popped
        self._stored: dict[int, list[int]] = {}  # times of storing by queue
        self._committed: dict[int, int] = {}
        self._pulled: dict[int, int] = {}
        self._pulled_at: str | None = None  # the node that knows of the pulls
        self._is_sending = False

    async def run(self) -> None:
        """Change something of everything, and query all figures. Raises Unsure, EndedError."""
        if self._is_sending:
            raise Unsure  # it was ended between a send and the times of what was sent
        await self._change_topic()
        for queue_id in range(self._write):
            if self._rng.random() < 0.6:
                await self._send(queue_id)
        before, self._pulled = self._pulled, {}
        for queue_id in range(self._read):
            if self._rng.random() < 0.4:
                await self._commit(queue_id)
            # What was pulled in a round before, a node may have forgotten: it is pulled anew.
            if queue_id in before or (self._stored.get(queue_id) and self._rng.random() < 0.5):
                await self._pull(queue_id)
        await self._query_progress()
        await self._query_progress_of_all()
        await self._query_times()
        await self._query_topic()
        await self._take_all()

    async def _change_topic(self) -> None:
        """Make the topic, or give it other numbers of queues: fewer to write, while all that has
        messages is still read."""
        rng = self._rng
        self._read = rng.randint(max(1, self._used()), QUEUES_MAX)
        self._write = rng.randint(1, self._read)
        self._is_order = rng.random() < 0.5
        await self.drill.request(
            f"topic {self._topic} with {self._read} queues to read, {self._write} to write",
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": self._topic,
                "defaultTopic": "TBW102",
                "readQueueNums": self._read,
                "writeQueueNums": self._write,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": str(self._is_order).lower(),
            },
            expected="0",
            changes=True,
        )

    def _used(self) -> int:
        """Return the number of queues up to the last one that has messages or an offset."""
        return max([*self._stored, *self._committed], default=-1) + 1

    async def _send(self, queue_id: int) -> None:
        count = self._rng.randint(*SENT)
        times = self._stored.setdefault(queue_id, [])
        begin = len(times)
        self._is_sending = True
        await self.drill.request(
            f"send {count} messages to queue {queue_id} of {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._topic, self.drill.queue.broker_name) | {"e": queue_id},
            body=encode_batch_body(BatchItem(b"progress", b"", 0) for _ in range(count)),
            expected=f"0 {begin}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('queueOffset')}",
            changes=True,
        )
        answer = await self._request_pull(queue_id, begin, f"{self._group}-reader", count)
        if answer is None:
            raise Unsure
        times += [record.store_timestamp_ms for record in records_of(answer)]
        self._is_sending = False

    async def _pull(self, queue_id: int) -> None:
        """Pull as the group, which is then known to be so far."""
        offset = self._rng.randrange(len(self._stored[queue_id]))
        answer = await self._request_pull(queue_id, offset, self._group, 1)
        if answer is None:
            raise Unsure
        if self._pulled and self._pulled_at != self.drill.node:
            raise Unsure
        self._pulled_at = self.drill.node
        self._pulled[queue_id] = offset + 1

    async def _request_pull(
        self, queue_id: int, offset: int, group: str, count: int
    ) -> RemotingCommand | None:
        return await self.drill.request(
            f"pull {count} from {offset} of queue {queue_id} of {self._topic} as {group}",
            RequestCode.PULL_MESSAGE,
            {
                "topic": self._topic,
                "queueId": queue_id,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": group,
                "queueOffset": offset,
                "maxMsgNums": count,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
            },
            expected=f"0 {list(range(offset, offset + count))}",
            show=lambda answer: (
                f"{answer.code} {[record.queue_offset for record in records_of(answer)]}"
            ),
            is_calm=True,
        )

    async def _commit(self, queue_id: int) -> None:
        offset = self._rng.randint(0, len(self._stored.get(queue_id, ())))
        await self.drill.request(
            f"commit {offset} of {self._group} in queue {queue_id}",
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {
                "consumerGroup": self._group,
                "topic": self._topic,
                "queueId": queue_id,
                "commitOffset": offset,
                "bname": self.drill.queue.broker_name,
            },
            expected="0",
            changes=True,
        )
        self._committed[queue_id] = offset

    # Questions -----------------------------------------------------------------------------------

    async def _query_progress(self) -> None:
        """Query by group and topic, by a list of topics, or all in which the group has
        offsets."""
        fields = {"consumerGroup": self._group}
        how = self._rng.random()
        if how < 0.3:
            fields["topicList"] = f"{self._topic};{self._topic}-more"
        elif how < 0.6 or not self._committed:
            fields["topic"] = self._topic
        await self._query(
            "progress",
            RequestCode.GET_CONSUME_STATS,
            fields,
            expected=self._progress(self._read),
            rows_of=lambda body: _progress_rows(body, self._topic),
        )

    def _progress(self, count: int) -> str:
        """Return what is to be shown of each of the first `count` queues: its end, how far the
        group has committed and pulled, and when its last message was stored."""
        rows = []
        for queue_id in range(count):
            times = self._stored.get(queue_id, [])
            offset = self._committed.get(queue_id, 0)
            pulled = max(offset, self._pulled.get(queue_id, 0))
            last_ms = times[offset - 1] if offset else 0
            rows.append(f"{queue_id}: {len(times)} {offset} {pulled} {last_ms}")
        return ", ".join(rows)

    async def _query_progress_of_all(self) -> None:
        """Query all groups in all topics, or in those that are in order."""
        only_ordered = self._rng.random() < 0.5
        is_shown = bool(self._committed) and (self._is_order or not only_ordered)
        await self._query(
            f"progress of all{' in order' if only_ordered else ''}",
            RequestCode.GET_BROKER_CONSUME_STATS,
            {"isOrder": str(only_ordered).lower()},
            expected=self._progress(self._write) if is_shown else "",
            rows_of=lambda body: _of_all(body, self._group, self._topic),
        )

    async def _query_times(self) -> None:
        rows = []
        waiting: dict[int, int] = {}  # when the next message was stored
        for queue_id in range(self._write):
            times = self._stored.get(queue_id, [])
            offset = self._committed.get(queue_id, 0)
            first, last = (times[0], times[-1]) if times else (-1, -1)
            consumed = times[offset - 1] if offset else first
            if offset < len(times):  # for how long, a broker's clock says
                waiting[queue_id] = times[offset]
            rows.append(
                f"{queue_id}: {first} {last} {consumed} {'some' if queue_id in waiting else 0}"
            )
        await self._query(
            "times",
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            {"topic": self._topic, "group": self._group},
            expected=", ".join(rows),
            rows_of=lambda body: _spans(body, waiting),
        )

    async def _query_topic(self) -> None:
        rows = []
        for queue_id in range(max(self._read, self._write)):
            times = self._stored.get(queue_id, [])
            rows.append(f"{queue_id}: 0 {len(times)} {times[-1] if times else 0}")
        await self._query(
            "bounds",
            RequestCode.GET_TOPIC_STATS_INFO,
            {"topic": self._topic},
            expected=", ".join(rows),
            rows_of=lambda body: _rows(
                body, self._topic, ("minOffset", "maxOffset", "lastUpdateTimestamp")
            ),
        )

    # Pops of all queues ----------------------------------------------------------------------

    async def _take_all(self) -> None:
        """Have a new group peek at all queues, and pop them by and by."""
        self._groups += 1
        group = f"{self._group}-pop-{self._groups}"
        ends = {at: len(self._stored.get(at, ())) for at in range(self._read)}
        nexts = dict.fromkeys(ends, 0)
        for code in (
            RequestCode.PEEK_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.POP_MESSAGE,
        ):
            count = self._rng.randint(1, POPPED_MAX)
            left = sum(ends.values()) - sum(nexts.values())
            if not left:
                return
            found = min(count, left)
            shown: dict[int, list[int]] = {}

            def show(answer: RemotingCommand, shown: dict[int, list[int]] = shown) -> str:
                for record in records_of(answer):
                    shown.setdefault(record.queue_id, []).append(record.queue_offset)
                is_next = all(
                    offsets == list(range(nexts[at], nexts[at] + len(offsets)))
                    for at, offsets in shown.items()
                )
                total = sum(map(len, shown.values()))
                rest = answer.ext_fields.get("restNum")
                return f"{answer.code}: {total}, the next ones {is_next}, {rest} left"

            await self.drill.request(
                f"{code.name.lower()} {count} of all queues of {self._topic} for {group}",
                code,
                {
                    "topic": self._topic,
                    "queueId": -1,
                    "bname": self.drill.queue.broker_name,
                    "consumerGroup": group,
                    "maxMsgNums": count,
                    "invisibleTime": INVISIBLE_MS,
                    "pollTime": 0,
                    "bornTime": 0,
                    "initMode": 0,
                    "order": "false",
                },
                # What is peeked at is left there, and counted.
                expected=f"0: {found}, the next ones True,"
                f" {left if code == RequestCode.PEEK_MESSAGE else left - found} left",
                show=show,
                changes=code == RequestCode.POP_MESSAGE,
                is_calm=code == RequestCode.PEEK_MESSAGE,
            )
            if code == RequestCode.POP_MESSAGE:
                for at, offsets in shown.items():
                    nexts[at] += len(offsets)

    async def _query(
        self,
        what: str,
        code: RequestCode,
        fields: Mapping[str, str],
        *,
        expected: str,
        rows_of: Callable[[Mapping[str, Any]], Mapping[int, str]],
    ) -> None:
        """Query a table of queues; `rows_of(body)` returns the text of each queue's row."""

        def show(answer: RemotingCommand) -> str:
            if answer.code != 0:
                return str(answer.code)
            try:
                rows = rows_of(fastjson.decode(answer.body, dict[str, Any]))
            except (BodyError, msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
                return f"unreadable: {error}"
            return ", ".join(f"{queue_id}: {rows[queue_id]}" for queue_id in sorted(rows))

        # How far a group has pulled, only the node knows that it has pulled from.
        only_by = self._pulled_at if self._pulled and "progress" in what else None
        await self.drill.request(
            f"{what} of {self._group} in {self._topic}",
            code,
            fields,
            expected=expected,
            show=show,
            is_calm=True,
            only_by=only_by,
        )


def _rows(body: Mapping[str, Any], topic: str, names: tuple[str, ...]) -> dict[int, str]:
    """Return the rows of a topic in a table by queue."""
    shown = {}
    for key, row in body.get("offsetTable", {}).items():
        name = parse_queue_name(key)
        if name.topic == topic:
            shown[name.queue_id] = " ".join(str(row[column]) for column in names)
    return shown


def _progress_rows(body: Mapping[str, Any], topic: str) -> dict[int, str]:
    return _rows(body, topic, ("brokerOffset", "consumerOffset", "pullOffset", "lastTimestamp"))


def _of_all(body: Mapping[str, Any], group: str, topic: str) -> dict[int, str]:
    rows: dict[int, str] = {}
    for listed in body.get("consumeStatsList", ()):
        for table in listed.get(group, ()):
            rows |= _progress_rows(table, topic)
    return rows


def _spans(body: Mapping[str, Any], waiting: Mapping[int, int]) -> dict[int, str]:
    """Return the times of each queue. `waiting`: when the next message of a queue was stored, for
    which its delay counts. By which clock is not known; it is one for all queues."""
    spans = {span["messageQueue"]["queueId"]: span for span in body.get("consumeTimeSpanSet", ())}
    clocks_ms = [spans[at]["delayTime"] + stored_ms for at, stored_ms in waiting.items()]
    is_one = max(clocks_ms, default=0) - min(clocks_ms, default=0) <= ONE_CLOCK_MS
    return {
        queue_id: (
            f"{span['minTimeStamp']} {span['maxTimeStamp']} {span['consumeTimeStamp']}"
            f" {'some' if queue_id in waiting and is_one else span['delayTime']}"
        )
        for queue_id, span in spans.items()
    }
