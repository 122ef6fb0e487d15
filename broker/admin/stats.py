"""VIEW_BROKER_STATS_DATA: sums and rates of one counter over the last minute, hour and day.

Place in the data path: none; requested by `mqadmin statsAll` and dashboards.
Source: RocketMQ AdminBrokerProcessor.ViewBrokerStatsData.
"""

from __future__ import annotations

import msgspec

from broker.request.desk import Desk
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.stats import Snapshot
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import ViewBrokerStatsDataRequestHeader

__all__ = ["StatsProcessor"]


class StatsProcessor:
    """Requests about counters of this process."""

    def __init__(self, replica: Replica, desk: Desk) -> None:
        self._replica = replica
        self._desk = desk

    def view(self, header: ViewBrokerStatsDataRequestHeader, request: Request) -> None:
        """Answer VIEW_BROKER_STATS_DATA. Raises RefusedError where there is no such counter."""
        name, key = header.stats_name, header.stats_key
        stats = self._desk.stats
        item = stats.item(name, key)
        # RocketMQ keys the counters of a whole broker by the name of its cluster.
        if item is None and key == self._replica.config.cluster:
            item = stats.broker_item(name)
        if item is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{name[:255]}> <{key[:512]}> not exist"
            )
        body = {
            "statsMinute": _shown(item.snapshot(item.minute)),
            "statsHour": _shown(item.snapshot(item.hour)),
            "statsDay": _shown(item.snapshot(item.day)),
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))


def _shown(snapshot: Snapshot) -> dict[str, float]:
    """Return RocketMQ's BrokerStatsItem."""
    return {"sum": snapshot.sum, "tps": snapshot.tps, "avgpt": snapshot.avgpt}
