"""GET_BROKER_RUNTIME_INFO: the table that `mqadmin clusterList` and `brokerStatus` print.

Place in the data path: none; it describes this process. RocketMQ's tools parse some of the values
and fail at a missing one, so every name of RocketMQ's is there. Rates and totals are counted on the
leader (`broker.request.stats`), since the start of its process. RocketMQ's thread pools and their
queues have one counterpart here, the pending proposals; the others are reported as 0.

Source: RocketMQ AdminBrokerProcessor.prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo,
ClusterListSubCommand.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Final

import msgspec

from broker.admin.disk_use import disk_use
from broker.entry.levels import DELAY_LEVEL_MAX
from broker.entry.payload import UNIT
from broker.entry.topics import SCHEDULE_TOPIC
from broker.queues.consume_queue import ConsumeQueue
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.queue_times import stored_ms
from broker.request.replica import Replica
from broker.request.request import Request
from remoting.protocol.codes import ResponseCode

__all__ = ["RuntimeInfoProcessor"]

_OVERDUE_MAX: Final = 10_000
_QUEUES_READ_MAX: Final = 512  # their files may be open at a time
_NO_SUCH_QUEUE: Final = dict.fromkeys(
    (
        "pullThreadPoolQueueSize",
        "litePullThreadPoolQueueSize",
        "queryThreadPoolQueueSize",
        "ackThreadPoolQueueSize",
        "EndTransactionQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "litePullThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueCapacity",
        "litePullThreadPoolQueueCapacity",
        "queryThreadPoolQueueCapacity",
        "ackThreadPoolQueueCapacity",
        "EndTransactionThreadPoolQueueCapacity",
        "pageCacheLockTimeMills",
        "remainTransientStoreBufferNumbs",
        "dispatchMaxBuffer",
        "dispatchBehindBytes",  # an entry is applied to ConsumeQueues before it is answered
    ),
    "0",
)


class RuntimeInfoProcessor:
    """Requests about this process as a whole."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._began_ms = replica.monotonic_ms()

    def handle(self, request: Request) -> None:
        """Answer GET_BROKER_RUNTIME_INFO."""
        table = {
            **_NO_SUCH_QUEUE,
            **self._process(),
            **self._store(),
            **self._counted(),
            **self._delayed(),
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"table": table}))

    def _process(self) -> dict[str, str]:
        replica, leadership, desk = self._replica, self._leadership, self._desk
        status = replica.log.status()
        up_ms = replica.monotonic_ms() - self._began_ms
        days, rest = divmod(up_ms // 1_000, 86_400)
        hours, rest = divmod(rest, 3_600)
        minutes, seconds = divmod(rest, 60)
        return {
            "brokerActive": "true" if leadership.ready else "false",
            "brokerVersion": "479",
            "brokerVersionDesc": "V5_3_3",
            "bootTimestamp": str(replica.clock_ms() - up_ms),
            "startAcceptSendRequestTimeStamp": "0",
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "sendThreadPoolQueueSize": str(leadership.proposer.pending_count),
            "sendThreadPoolQueueCapacity": str(replica.config.proposer.pending_max),
            "totalMemKBytes": str(
                os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_024
            ),
            "residentSizeKiB": str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
            "cpuSeconds": f"{time.process_time():.2f}",
            "pid": str(os.getpid()),
            "raftRole": status.role.value,
            "raftTerm": str(status.term),
            "raftCommitIndex": str(status.commit_index),
            "raftAppliedIndex": str(status.applied_index),
            "undecidedHalves": str(len(replica.state.halves)),
            "pullsHeld": str(len(desk.long_polling)),
            "loopStalls": "0" if desk.stalls is None else str(desk.stalls.count),
        }

    def _store(self) -> dict[str, str]:
        replica = self._replica
        disk = disk_use(replica.config.store)
        ratio = f"{disk.used_percent / 100:.4f}"
        bounds = replica.log.retention_bounds()
        free, size = _bytes(disk.free), _bytes(disk.used + disk.free)
        return {
            "commitLogMinOffset": str(bounds.begin_position),
            "commitLogMaxOffset": str(bounds.end_position),
            "commitLogDiskRatio": ratio,
            "commitLogDiskRatio_" + str(replica.config.store): ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {size}, Free : {free}.",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "remainHowManyDataToFlush": "0 B",  # a send is answered after the fsync
            "remainHowManyDataToCommit": "0 B",
        }

    def _earliest_ms(self) -> int:
        """Return when the oldest message of any queue was stored; now if there is none. Of many
        queues, when the log's begin was written, to within a minute: to read them all would stop
        the broker, for a value of a table that tools poll."""
        replica = self._replica
        queues = replica.queues.items()
        if len(queues) > _QUEUES_READ_MAX:
            state = replica.state
            begin = replica.log.retention_bounds().begin_position
            return state.time_marks.time_at(begin) or state.store_timestamp_ms
        oldest: tuple[int, ConsumeQueue] | None = None
        for _, _, queue in queues:
            unit = queue.read(queue.min_offset, 1)
            if unit and (oldest is None or UNIT.unpack(unit)[0] < oldest[0]):
                oldest = UNIT.unpack(unit)[0], queue
        if oldest is None:
            return replica.clock_ms()
        return stored_ms(replica, oldest[1], oldest[1].min_offset) or replica.clock_ms()

    def _counted(self) -> dict[str, str]:
        stats = self._desk.stats
        totals, rates = stats.totals, stats.rates()
        return {
            **rates,
            "getTransferedTps": rates["getTransferredTps"],  # how 4.9 spells it
            "putMessageTimesTotal": str(totals.put_count),
            "putMessageSizeTotal": str(totals.put_size),
            "getMessageTimesTotal": str(totals.get_count),
            "putMessageAverageSize": str(totals.put_size / max(1, totals.put_count)),
            "msgPutTotalYesterdayMorning": str(totals.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(totals.put_today_morning),
            "msgPutTotalTodayNow": str(totals.put_count),
            "msgGetTotalYesterdayMorning": str(totals.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(totals.get_today_morning),
            "msgGetTotalTodayNow": str(totals.get_count),
        }

    def _delayed(self) -> dict[str, str]:
        """Return "delivered,stored" offsets of each delay level, and counts of timer messages."""
        replica, desk = self._replica, self._desk
        levels: dict[str, str] = {}
        for queue_id in range(DELAY_LEVEL_MAX):
            delivered = replica.state.delay_offsets.get(queue_id, 0)
            stored = replica.state.next_offset(SCHEDULE_TOPIC, queue_id)
            if stored:
                levels[f"scheduleMessageOffset_{queue_id + 1}"] = f"{delivered},{stored}"
        overdue = replica.state.timers.due(replica.clock_ms(), but=(), count_max=_OVERDUE_MAX)
        return {
            **levels,
            "timerReadBehind": "0",  # seconds: all timers are in one table, read without delay
            "timerOffsetBehind": "0",
            "timerCongestNum": str(len(overdue)),
            "timerEnqueueTps": str(desk.stats.tps("TOPIC_PUT_NUMS", "rmq_sys_wheel_timer")),
            "timerDequeueTps": str(desk.stats.tps("TIMER_DEQUEUE_NUMS", "rmq_sys_wheel_timer")),
        }


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1_024:
            return f"{size:.1f} {unit}"
        size /= 1_024
    return f"{size:.1f} TiB"
