"""Reads: pulls, what a queue has and when, messages by position and by key, statistics, filters.

Place in the data path: a speaker of `talk`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from chaos.workload.talks.talk_desk import BEHIND_S, CLIENTS, KEYS, NO_SQL, QUEUES, SQL, Desk
from remoting.protocol.codes import RequestCode as Code

__all__ = ["ReadTalk"]

_NOWHERE: Final = 1 << 40
_LATE_MS: Final = 1 << 42


class ReadTalk:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def kinds(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        """Return the questions, and how often each is sent."""
        return {
            self._pull: 12,
            self._ends: 4,
            self._search: 4,
            self._view: 2,
            self._query: 3,
            self._units: 2,
            self._topic_stats: 2,
            self._check_filter: 2,
            self._peek: 2,
        }

    async def _pull(self) -> None:
        fields = {
            "consumerGroup": self._desk.group(),
            "topic": self._desk.topic(),
            "queueId": self._desk.queue(),
            "queueOffset": self._desk.offset_near(),
            "maxMsgNums": self._desk.odd(32, 1, 2, 5),
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 1,
            **self._desk.subscription(),
        }
        if self._desk.rng.random() < 0.15:  # it brings an offset to be stored
            fields["sysFlag"], fields["commitOffset"] = 5, self._desk.rng.randrange(6)
            fields["consumerGroup"] = self._desk.pulling_group()
        code = self._desk.odd(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
        answer = await self._desk.step("pull", code, fields)
        await self._desk.follow(answer, code, fields)

    async def _ends(self) -> None:
        code = self._desk.rng.choice(
            (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME)
        )
        fields = {"topic": self._desk.topic(), "queueId": self._desk.queue()}
        if code == Code.GET_MAX_OFFSET and self._desk.rng.random() < 0.3:
            fields["committed"] = self._desk.rng.choice(("true", "false"))
        await self._desk.step(Code(code).name.lower(), code, fields)

    async def _search(self) -> None:
        topic, queue = self._desk.topic(), self._desk.queue()
        boundary = self._desk.rng.choice(("LOWER", "UPPER", None))
        usual = self._desk.rng.random() < 0.7
        known = self._desk.one_of(self._desk.known.sent)
        extreme = self._desk.rng.choice((0, _LATE_MS, -1))
        at = extreme
        if usual and known is not None:
            at, topic = await self._desk.stored_ms(known), known.topic
        fields = {"topic": topic, "queueId": queue, "timestamp": at, "boundaryType": boundary}
        await self._desk.step("search by time", Code.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    async def _view(self) -> None:
        known = self._desk.one_of(self._desk.known.sent)
        position = self._desk.odd(0 if known is None else known.position, _NOWHERE)
        if known is not None:
            await self._desk.step("view", Code.VIEW_MESSAGE_BY_ID, {"offset": position})

    async def _query(self) -> None:
        known = self._desk.one_of(self._desk.known.sent)
        topic, key = (
            self._desk.topic(),
            self._desk.odd(self._desk.rng.choice(KEYS), "unknown", share=0.1),
        )
        fields: dict[str, Any] = {
            "topic": topic,
            "key": key,
            "maxNum": self._desk.odd(32, 1, 2),
            "beginTimestamp": 0,
            "endTimestamp": 1 << 45,
        }
        if self._desk.rng.random() < 0.3 and known is not None:
            fields |= {"topic": known.topic, "key": known.uniq_key, "_UNIQUE_KEY_QUERY": "true"}
        await asyncio.sleep(BEHIND_S)
        await self._desk.step("query", Code.QUERY_MESSAGE, fields)

    async def _units(self) -> None:
        fields = {
            "topic": self._desk.topic(),
            "queueId": self._desk.queue(),
            "index": self._desk.offset_near(),
            "count": self._desk.odd(3, 0, 1, 50),
        }
        await self._desk.step("consume queue", Code.QUERY_CONSUME_QUEUE, fields)

    async def _topic_stats(self) -> None:
        fields = {"topic": self._desk.topic()}
        await self._desk.step("topic stats", Code.GET_TOPIC_STATS_INFO, fields)

    async def _check_filter(self) -> None:
        subscription = {
            "topic": self._desk.topic(),
            "subString": self._desk.odd(self._desk.rng.choice(SQL), *NO_SQL),
            "tagsSet": [],
            "codeSet": [],
            "subVersion": 1,
            "expressionType": "SQL92",
            "classFilterMode": False,
        }
        body = {
            "clientId": self._desk.client(CLIENTS[0]),
            "group": self._desk.group(),
            "subscriptionData": subscription,
        }
        await self._desk.step("check", Code.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())

    async def _peek(self) -> None:
        fields = {
            "consumerGroup": self._desk.group(),
            "topic": self._desk.topic(),
            "queueId": self._desk.rng.randrange(QUEUES),
            "maxMsgNums": self._desk.odd(2, 1, 32),
        }
        if self._desk.rng.random() < 0.5:
            await self._desk.step("peek", Code.PEEK_MESSAGE, fields)
        else:
            fields |= {"pollTime": 0, "bornTime": int(time.time() * 1000), "order": "false"}
            await self._desk.step("notification", Code.NOTIFICATION, fields)
