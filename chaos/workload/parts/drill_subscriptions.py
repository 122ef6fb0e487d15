"""Drills of subscriptions: pulls that carry none, and get what their group's last heartbeat wants.

Place in the data path: `drills` makes one with each new group; heartbeats and pulls go to the
leader, which forgets them when it ends: what another node answers says nothing.

Source: RocketMQ PullMessageProcessor, ConsumerManager (subscription data by version).
"""

from __future__ import annotations

import itertools
import json
from typing import Final

from chaos.workload.parts.drill import Drill, Unsure, values_of
from remoting.protocol.codes import RequestCode

__all__ = ["SubscriptionDrill"]

CHANGES: Final = 3
COUNT_MAX: Final = 8
_NOT_EXIST: Final = "24"
_NOT_LATEST: Final = "25"


class SubscriptionDrill:
    """One group, whose member wants other tags with each heartbeat."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._node: str | None = None
        self._has_begun = False

    async def run(self) -> None:
        """Pull before the first heartbeat, and after each. Raises Unsure, EndedError."""
        if self._has_begun:  # the drill before it ended in the middle of this
            raise Unsure
        self._has_begun = True
        await self._refused(0, _NOT_EXIST)
        versions = itertools.count(5)
        for version in itertools.islice(versions, CHANGES):
            tags = sorted(self.drill.rng.sample([f"T{n}" for n in range(4)], 2))
            await self._subscribe(tags, version)
            await self._pull(tags, version)
            await self._pull(tags, version - 1)
            await self._refused(version + 1, _NOT_LATEST)
        raise Unsure  # another group has not begun yet

    async def _subscribe(self, tags: list[str], version: int) -> None:
        topic = {
            "topic": self.drill.queue.topic,
            "subString": " || ".join(tags),
            "subVersion": version,
            "expressionType": "TAG",
        }
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [topic],
        }
        body = {"clientID": f"{self._group}@0", "consumerDataSet": [consumer]}
        await self.drill.ask(
            f"heartbeat of {self._group}, which wants {tags} from version {version} on",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )
        self._node = self.drill.node

    async def _pull(self, tags: list[str], version: int) -> None:
        """Pull with the version of the last heartbeat, or an older one."""
        offset, count = self.drill.rng.randint(0, self.drill.end), COUNT_MAX
        found = [each for each in self.drill.stored[offset:] if each.tag in tags][:count]
        if not found:
            return
        await self.drill.ask(
            f"pull {count} from {offset} of {self._group} by version {version}",
            RequestCode.PULL_MESSAGE,
            self._fields(offset, version) | {"expressionType": "TAG"},
            expected=" ".join(["0", *(f"{each.offset}:{each.value}" for each in found)]),
            show=lambda answer: f"{answer.code} {values_of(answer).replace(',', ' ')}",
            is_calm=True,
            only_by=self._node,
        )

    async def _refused(self, version: int, code: str) -> None:
        """Pull by an expression that no heartbeat told."""
        await self.drill.ask(
            f"pull of {self._group} by an expression of version {version}",
            RequestCode.PULL_MESSAGE,
            self._fields(0, version) | {"expressionType": "SQL92"},
            expected=code,
            is_calm=True,
            only_by=self._node,
        )

    def _fields(self, offset: int, version: int) -> dict[str, object]:
        return self.drill.place(
            consumerGroup=self._group,
            queueOffset=offset,
            maxMsgNums=COUNT_MAX,
            sysFlag=0,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=version,
        )
