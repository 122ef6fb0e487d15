"""GET_BROKER_RUNTIME_INFO: the table that `mqadmin clusterList` and `brokerStatus` print.

Place in the data path: none; a look at this process. RocketMQ's tools parse some of the values
and stumble over a missing one, so every name that they read is there. Rates and totals by the day
are not measured yet: they say 0.

Source: RocketMQ AdminBrokerProcessor.prepareRuntimeInfo, ClusterListSubCommand.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.context import BrokerContext
from broker.disk_room import disk_use
from broker.request import Request
from remoting.codes import ResponseCode

__all__ = ["RuntimeInfoProcessor"]

_NOT_MEASURED: Final = {
    **dict.fromkeys(
        (
            "putTps",
            "getTotalTps",
            "getFoundTps",
            "getMissTps",
            "getTransferredTps",
            "getTransferedTps",  # how 4.9 spells it
        ),
        "0.0 0.0 0.0",
    ),
    **dict.fromkeys(
        (
            "sendThreadPoolQueueSize",
            "pullThreadPoolQueueSize",
            "ackThreadPoolQueueSize",
            "sendThreadPoolQueueHeadWaitTimeMills",
            "pullThreadPoolQueueHeadWaitTimeMills",
            "ackThreadPoolQueueHeadWaitTimeMills",
            "pageCacheLockTimeMills",
            "msgPutTotalYesterdayMorning",
            "msgPutTotalTodayMorning",
            "msgPutTotalTodayNow",
            "msgGetTotalYesterdayMorning",
            "msgGetTotalTodayMorning",
            "msgGetTotalTodayNow",
            "timerReadBehind",
            "timerOffsetBehind",
            "timerCongestNum",
        ),
        "0",
    ),
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class RuntimeInfoProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._boot_ms = context.clock_ms()

    def handle(self, request: Request) -> None:
        """GET_BROKER_RUNTIME_INFO."""
        context = self._context
        status = context.log.status()
        disk = disk_use(context.config.store)
        ratio = f"{disk.used_percent / 100:.4f}"
        table = {
            **_NOT_MEASURED,
            "brokerActive": "true",
            "brokerVersion": "479",
            "brokerVersionDesc": "V5_3_3",
            "bootTimestamp": str(self._boot_ms),
            "earliestMessageTimeStamp": str(context.clock_ms()),  # not kept: age 0
            "commitLogMinOffset": str(status.begin_position),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "raftRole": status.role.value,
            "raftTerm": str(status.term),
            "raftCommitIndex": str(status.commit_index),
            "undecidedHalves": str(len(context.state.halves)),
            "pullsHeld": str(len(context.long_polling)),
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"table": table}))
