"""An orderly member that crashes: its queues are free long before the lease of its locks is over.

Place in the data path: `broker.leader.rebalance_lock`; a client greets the group's leader, locks a
queue, and its connections end without a word. Another member asks for the queue until it has it.

Invariants: both are raw clients, so that nothing but the broker's rule decides; the second one is a
member all the time, since the rule is about the owner. Leases are short, or the drill is left out.

Source: decision 18 (locks of who is gone); RocketMQ RebalanceLockManager, whose locks all last for
REBALANCE_LOCK_MAX_LIVE_TIME.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.applications.cut_off import LEASE_MS_MAX, lease_ms_of
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["CrashedOwner"]

OF_THE_GONE: Final = 7 / 12  # of a lease, for which the locks of a client last that is gone
SLACK: Final = 1 / 4
"""Of a lease, for requests and polls; less than what is left of it."""
_BUSY: Final = frozenset({2, 14})


class CrashedOwner:
    """One queue, its owner, and who waits for it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._group = f"{bench.name}-members"
        self._lease_ms = lease_ms_of(bench)

    async def run(self) -> None:
        """Lock, crash, and lock as another. Raises ClientError."""
        if self._lease_ms > LEASE_MS_MAX:
            return
        bench, loop = self._bench, asyncio.get_running_loop()
        (queue,) = await bench.make_topic(1)
        other = bench.admin.instance
        async with bench.tool(self._group) as crashing:
            owner = crashing.instance
            await self._greet(owner, "owner")
            await self._greet(other, "other")
            bench.hold(
                "queues that the first of two members locks",
                expected=[0],
                answered=await self._lock(owner, "owner", queue),
            )
            locked_s = loop.time()
            bench.drop_connections(owner)
        lease_s = self._lease_ms / 1000
        end_s = locked_s + lease_s * (OF_THE_GONE + SLACK) * bench.patience
        while not (held := await self._lock(other, "other", queue)) and loop.time() < end_s:
            await bench.pause()
        bench.hold(
            "queues that another member locks in time whose owner has crashed",
            expected=[0],
            answered=held,
        )

    async def _greet(self, instance: ClientInstance, who: str) -> None:
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "BROADCASTING",  # no topic for retries is made
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": False,
        }
        body = {
            "clientID": self._client_id(who),
            "producerDataSet": [],
            "consumerDataSet": [consumer],
        }
        await self._request(instance, RequestCode.HEART_BEAT, body)

    async def _lock(self, instance: ClientInstance, who: str, queue: MessageQueue) -> list[int]:
        """Return the numbers of the queues that the client holds. Raises ClientError."""
        named = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        body = {
            "consumerGroup": self._group,
            "clientId": self._client_id(who),
            "mqSet": [named],
        }
        answer = await self._request(instance, RequestCode.LOCK_BATCH_MQ, body)
        locked = json.loads(answer.body).get("lockOKMQSet", []) if answer.body else []
        return [int(each["queueId"]) for each in locked]

    def _client_id(self, who: str) -> str:
        return f"{self._group}-{who}"

    async def _request(
        self, instance: ClientInstance, code: RequestCode, body: dict[str, Any]
    ) -> RemotingCommand:
        encoded = json.dumps(body).encode()
        answer, _ = await request_leader(
            instance,
            self._bench.broker_group,
            lambda: RemotingCommand(code=code, body=encoded),
            timeout_ms=self._bench.timeout_ms,
        )
        return answer
