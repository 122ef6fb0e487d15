"""VIEW_BROKER_STATS_DATA: what a counter did in the last minute, hour, day.

Place in the data path: none; asked by `mqadmin statsAll` and dashboards.
Source: RocketMQ AdminBrokerProcessor.ViewBrokerStatsData.
"""

from __future__ import annotations

import msgspec

from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.request.stats import Snapshot
from remoting.protocol.codes import ResponseCode

__all__ = ["StatsProcessor"]


class StatsProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def view(self, request: Request) -> None:
        """VIEW_BROKER_STATS_DATA."""
        name, key = request.text("statsName"), request.text("statsKey")
        stats = self._context.stats
        item = stats.item(name, key)
        if item is None and key == self._context.config.cluster:
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
    return {"sum": snapshot.sum, "tps": snapshot.tps, "avgpt": snapshot.avgpt}
