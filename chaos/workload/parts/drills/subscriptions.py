"""Drills of subscriptions: pulls that carry none, and get what their group's last heartbeat wants;
none of what a group wants is passed over, whichever of both comes first.

Place in the data path: `drills` makes one of each with each new group; heartbeats and pulls go to
the leader, which forgets them when it ends: what another node answers says nothing.

The model: of two heartbeats the newer version counts, whichever comes last. A pull of a newer one
than any heartbeat told is refused, or filters nothing, since nobody there knows what it wants. A
pull that is held gets what its group wants when it is answered.

Source: RocketMQ PullMessageProcessor, PullRequestHoldService (a held pull is processed anew),
ConsumerGroupInfo.updateSubscription (by version).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Coroutine, Sequence
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import (
    UNLISTED,
    Drill,
    EndedError,
    Unsure,
    batch_fields,
)
from chaos.workload.parts.common.shown_answers import records_of, values_of
from chaos.workload.parts.drills.topic_of_drill import make_topic
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body, java_string_hash
from remoting.records.property_names import PropertyName

__all__ = ["HeldSubscriptionDrill", "SubscriptionDrill"]

CHANGES: Final = 3
COUNT_MAX: Final = 8
TAGS: Final = tuple(f"T{number}" for number in range(4))
HELD_MS: Final = (150, 400)
HELD_S: Final = 0.05  # within which a pull that was sent is held
HELD_ROUNDS: Final = 3
SENT_MAX: Final = 4
_HELD: Final = 2  # bit of a pull's sysFlag
_NOT_EXIST: Final = "24"
_NOT_LATEST: Final = "25"
_NOTHING_PASSED: Final = "passed over []"


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
        versions = itertools.count(5, step=2)
        for version in itertools.islice(versions, CHANGES):
            tags = sorted(self.drill.rng.sample(TAGS, 2))
            await self._subscribe(tags, version)
            await self._pull(tags, version)
            await self._pull(tags, version - 1)
            await self._pull_newer(tags, version + 1)
            # One that was sent before, and comes late, says nothing any more.
            late = version - self.drill.rng.randrange(2)
            await self._subscribe(sorted(self.drill.rng.sample(TAGS, 1)), late)
            await self._pull(tags, version)
            await self._refused(version + 1, _NOT_LATEST)
        raise Unsure  # another group has not begun yet

    async def _subscribe(self, tags: Sequence[str], version: int) -> None:
        await _beat(self.drill, self._group, self.drill.queue.topic, tags, version)
        self._node = self.drill.node

    async def _pull_newer(self, tags: Sequence[str], version: int) -> None:
        """Pull by a version that no heartbeat has reported yet."""
        offset = self.drill.rng.randint(0, max(0, self.drill.end - COUNT_MAX))
        offsets = range(offset, self.drill.end)
        await self.drill.request(
            f"pull {COUNT_MAX} from {offset} of {self._group} by version {version}, still unknown,"
            f" behind {tags}",
            RequestCode.PULL_MESSAGE,
            self._fields(offset, version) | {"expressionType": "TAG"},
            expected=_NOTHING_PASSED,
            show=lambda answer: _show_passed(answer, offsets),
            is_calm=True,
            only_by=self._node,
            may_be=frozenset({int(_NOT_LATEST)}),
        )

    async def _pull(self, tags: list[str], version: int) -> None:
        """Pull with the version of the last heartbeat, or an older one."""
        offset, count = self.drill.rng.randint(0, self.drill.end), COUNT_MAX
        found = [each for each in self.drill.stored[offset:] if each.tag in tags][:count]
        if not found:
            return
        await self.drill.request(
            f"pull {count} from {offset} of {self._group} by version {version}",
            RequestCode.PULL_MESSAGE,
            self._fields(offset, version) | {"expressionType": "TAG"},
            expected=" ".join(["0", *(f"{each.offset}:{each.value}" for each in found)]),
            show=lambda answer: f"{answer.code} {values_of(answer).replace(',', ' ')}",
            is_calm=True,
            only_by=self._node,
        )

    async def _refused(self, version: int, code: str) -> None:
        """Pull by an expression that no heartbeat reported."""
        await self.drill.request(
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


class HeldSubscriptionDrill:
    """One group, and a topic of one queue that nobody else knows and in no manifest is: what its
    member wants changes while a pull is held, and then messages come."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._held = drill.beside(group)
        self._group = group
        self._topic = f"{UNLISTED}{group}-held"
        self._tags: list[str] = []  # of what stands there
        self._has_begun = False

    async def run(self) -> None:
        """Hold pulls, and change what is wanted. Raises Unsure, EndedError."""
        if self._has_begun:
            raise Unsure
        self._has_begun = True
        await make_topic(self.drill, self._topic)
        for version in range(1, 2 * HELD_ROUNDS, 2):
            await self._hold_one(version)
        raise Unsure  # another group has not begun yet

    async def _hold_one(self, version: int) -> None:
        rng, drill = self.drill.rng, self.drill
        before, after = (sorted(rng.sample(TAGS, rng.randint(1, 2))) for _ in range(2))
        await _beat(drill, self._group, self._topic, before, version)
        node = drill.node
        begin, wanted = len(self._tags), set(after)

        def show(answer: RemotingCommand) -> str:
            stands = range(begin, len(self._tags))
            return _show_passed(answer, [at for at in stands if self._tags[at] in wanted])

        async with asyncio.TaskGroup() as tasks:
            pull = tasks.create_task(
                _settled(
                    self._held.request(
                        f"pull from {begin} of {self._topic} that is held from {before} to {after}",
                        RequestCode.PULL_MESSAGE,
                        self._fields(begin, version),
                        expected=_NOTHING_PASSED,
                        show=show,
                        is_calm=True,
                        only_by=node,
                        from_other=True,
                    )
                )
            )
            change = tasks.create_task(_settled(self._change(after, version + 1)))
        for error in (change.result(), pull.result()):
            if error is not None:
                raise error
        if drill.node != node:
            raise Unsure  # another leader, which has to learn it anew

    async def _change(self, tags: Sequence[str], version: int) -> None:
        if await sleep_until_set(self.drill.ends, HELD_S):
            raise EndedError
        await _beat(self.drill, self._group, self._topic, tags, version)
        for _ in range(self.drill.rng.randint(1, 2)):
            await self._send([self.drill.rng.choice(TAGS) for _ in range(SENT_MAX)])

    async def _send(self, tags: Sequence[str]) -> None:
        begin, self._tags = len(self._tags), [*self._tags, *tags]
        items = [
            BatchItem(b"held", f"{PropertyName.TAGS}\x01{tag}\x02".encode(), 0) for tag in tags
        ]
        await self.drill.request(
            f"send {tags} to {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._topic, self.drill.queue.broker_name),
            body=encode_batch_body(items),
            expected=f"0 {begin}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('queueOffset')}",
            changes=True,
        )

    def _fields(self, offset: int, version: int) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self.drill.queue.broker_name,
            "consumerGroup": self._group,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": _HELD,
            "commitOffset": 0,
            "suspendTimeoutMillis": self.drill.rng.randint(*HELD_MS),
            "subVersion": version,
            "expressionType": "TAG",
        }


async def _beat(drill: Drill, group: str, topic: str, tags: Sequence[str], version: int) -> None:
    """Send a heartbeat of the group's one member."""
    subscription = {
        "topic": topic,
        "subString": " || ".join(tags),
        "subVersion": version,
        "expressionType": "TAG",
        # RocketMQ's brokers compare with these hashes, as clients make them; ours make their own.
        "tagsSet": list(tags),
        "codeSet": [java_string_hash(tag) for tag in tags],
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": f"{group}@0", "consumerDataSet": [consumer]}
    await drill.request(
        f"heartbeat of {group}, which wants {tags} from version {version} on",
        RequestCode.HEART_BEAT,
        {},
        body=json.dumps(body).encode(),
        expected="0",
        changes=True,
    )


async def _settled(work: Coroutine[None, None, object]) -> Unsure | EndedError | None:
    """Return why a drill's work has ended, once it has."""
    try:
        await work
    except (Unsure, EndedError) as error:
        return error
    return None


def _show_passed(answer: RemotingCommand, wanted: Sequence[int]) -> str:
    """Show which of the offsets that are wanted an answer goes on behind, and has not."""
    if str(answer.code) == _NOT_LATEST:
        return _NOTHING_PASSED
    text = answer.ext_fields.get("nextBeginOffset", "")
    if not text.isdecimal():
        return f"{answer.code} without an offset"
    found = {record.queue_offset for record in records_of(answer)}
    return f"passed over {[at for at in wanted if at < int(text) and at not in found]}"
