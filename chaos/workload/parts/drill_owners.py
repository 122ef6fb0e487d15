"""Drills of members and locks: who is in a group, and whose a queue is.

Place in the data path: `drills` runs them in turn with the others; requests go through
`drill.Drill`, in the name of clients that exist only there: a broker knows a client by the id in
its heartbeats.

A member is known to a node that answered its heartbeat, over one connection, for as long as the
broker's client silence is not over; so it is asked for just before the next heartbeat is due, for
longer than one silence. A lock is asserted only as long as no lease can be over.

Source: RocketMQ ConsumerManager, ClientManageProcessor, RebalanceLockManager; decision 18.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.drill import Drill, EndedError, Unsure
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["LockDrill", "MemberDrill"]

BEATS_PER_SILENCE: Final = 5
PAUSE_S_MIN: Final = 0.2
SILENCES: Final = 1.7  # for how many of them members are asked for
MEMBERS: Final = (1, 3)
LOCK_SURE_S: Final = 0.8
STEPS: Final = 8
_NOBODY: Final = 1  # the code of an answer that a group has no member


class MemberDrill:
    """Members that send their heartbeats, and one that leaves in the end."""

    def __init__(self, drill: Drill, group: str, *, silence_ms: int) -> None:
        self.drill = drill
        self._group = group
        self._pause_s = max(PAUSE_S_MIN, silence_ms / 1000 / BEATS_PER_SILENCE)
        self._node: str | None = None  # that has all heartbeats

    async def run(self) -> None:
        """Be members for a while. Raises Unsure."""
        names = [f"{self._group}@{n}" for n in range(self.drill.rng.randint(*MEMBERS))]
        beats = round(BEATS_PER_SILENCE * SILENCES)
        for _ in range(beats):
            for name in names:
                await self._beat(name)
            await self._list(names)
            if await sleep_until_set(self.drill.ends, self._pause_s):
                raise EndedError
            await self._list(names)
        gone = names.pop()
        await self.drill.ask(
            f"{gone} leaves",
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": gone, "consumerGroup": self._group},
            expected="0",
            changes=True,
        )
        await self._list(names)
        raise Unsure

    async def _beat(self, name: str) -> None:
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": self.drill.queue.topic, "subString": "*"}],
        }
        body = {"clientID": name, "producerDataSet": [], "consumerDataSet": [consumer]}
        await self.drill.ask(
            f"heartbeat of {name}",
            RequestCode.HEART_BEAT,
            {},
            body=json.dumps(body).encode(),
            expected="0",
            changes=True,
        )
        if self._node not in {None, self.drill.node}:
            raise Unsure  # this node knows of this client only
        self._node = self.drill.node

    async def _list(self, names: list[str]) -> None:
        await self.drill.ask(
            f"members of {self._group}",
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": self._group},
            expected=" ".join(sorted(names)) or "nobody",
            show=_show_members,
            is_calm=True,
            may_be=frozenset({_NOBODY}),
            only_by=self._node,
        )


class LockDrill:
    """Two clients that want the same queues of a group."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._owners: dict[int, str] = {}
        self._locked_s: dict[int, float] = {}

    async def run(self) -> None:
        """Lock and unlock for a while, then give all back. Raises Unsure."""
        rng, queue_count = self.drill.rng, self.drill.queue_count
        clients = [f"{self._group}@a", f"{self._group}@b"]
        for _ in range(STEPS):
            client = rng.choice(clients)
            queues = sorted(rng.sample(range(queue_count), rng.randint(1, queue_count)))
            if not self._owners and rng.random() < 0.4:
                await self._lock_at_once(clients, queues)
                continue
            if rng.random() < 0.6:
                await self._lock(client, queues)
            else:
                await self._unlock(client, queues)
        for client in clients:
            await self._unlock(client, list(range(queue_count)))
        raise Unsure  # a later round would not know whose lease is over

    async def _lock(self, client: str, queues: list[int]) -> None:
        begun_s = asyncio.get_running_loop().time()
        if any(begun_s - self._locked_s[queue] > LOCK_SURE_S for queue in self._owners):
            raise Unsure  # a lease may be over, or will be
        got = [queue for queue in queues if self._owners.get(queue, client) == client]
        await self.drill.ask(
            f"lock {queues} for {client}",
            RequestCode.LOCK_BATCH_MQ,
            {},
            body=self._body(client, queues),
            expected=f"0 {got}",
            show=_show_locked,
            changes=True,
        )
        for queue in got:
            self._owners[queue] = client
            self._locked_s[queue] = begun_s
        ended_s = asyncio.get_running_loop().time()
        if ended_s - begun_s > LOCK_SURE_S:
            raise Unsure

    async def _lock_at_once(self, clients: list[str], queues: list[int]) -> None:
        """Have two clients lock the same queues at one time, of which one gets all of them."""
        begun_s = asyncio.get_running_loop().time()
        answers = await self.drill.ask_twice(
            f"lock {queues} for each of {clients}",
            RequestCode.LOCK_BATCH_MQ,
            [({}, self._body(client, queues)) for client in clients],
            expected=[f"0 {queues}", "0 []"],
            show=_show_locked,
        )
        for client, answer in zip(clients, answers, strict=True):
            if _show_locked(answer) != "0 []":
                self._owners |= dict.fromkeys(queues, client)
                self._locked_s |= dict.fromkeys(queues, begun_s)

    async def _unlock(self, client: str, queues: list[int]) -> None:
        await self.drill.ask(
            f"unlock {queues} of {client}",
            RequestCode.UNLOCK_BATCH_MQ,
            {},
            body=self._body(client, queues),
            expected="0",
            changes=True,
        )
        for queue in queues:
            if self._owners.get(queue) == client:
                del self._owners[queue]

    def _body(self, client: str, queues: list[int]) -> bytes:
        place = self.drill.queue
        named = [
            {"topic": place.topic, "brokerName": place.broker_name, "queueId": queue}
            for queue in queues
        ]
        body = {"consumerGroup": self._group, "clientId": client, "mqSet": named}
        return json.dumps(body).encode()


def _show_members(answer: RemotingCommand) -> str:
    if answer.code == _NOBODY:
        return "nobody"
    names = json.loads(answer.body or b"{}").get("consumerIdList") or []
    return " ".join(sorted(names))


def _show_locked(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    rows = json.loads(answer.body or b"{}").get("lockOKMQSet") or []
    return f"0 {sorted(row['queueId'] for row in rows)}"
