"""Drills of `ack_all`: a POP client acknowledges some of what it holds in one request, whatever
pops, queues, changes and retries those messages are of, and nothing else is acknowledged by it.

Place in the data path: `drills` makes one with each new group, which pops all queues of the topic
through `client.consume.pop_consumer`, whose handles and bodies are thereby tried; `pops` and
`spans` write theirs by themselves.

The model: what the group holds, and what it has acknowledged. A message's time can be changed as
long as it is held, which says of each whether it is. Times are so long that nothing comes back by
itself; what is given back may come again, from the group's retries, and nothing else may.

Source: RocketMQ BatchAckMessageRequestBody, ChangeInvisibleTimeProcessor, ExtraInfoUtil.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Unsure
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.retry import RetryPolicy
from client.consume.batch_ack import batch_ack_body
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings, PoppedMessage
from client.errors import BrokerRefusedError, ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["BatchAckDrill"]

ROUNDS: Final = (2, 4)
COUNTS: Final = (4, 32, 32)
INVISIBLE_MS: Final = 6 * 3_600_000
TIMEOUT_MS: Final = 2_000
CHANGED_MAX: Final = 3  # of a round: prolonged, and as many given back
BACK_MS: Final = 100
BACK_WITHIN_S: Final = 0.5  # what is given back has mostly come by then
ALL_SHARE: Final = 0.2  # of the rounds acknowledge all that is held
CHECKED: Final = 6  # messages of each kind that are queried
LONG_SHARE: Final = 0.3
_LONG: Final[Mapping[str, str]] = {
    "c": "consumerGroup",
    "t": "topic",
    "r": "retry",
    "so": "startOffset",
    "q": "queueId",
    "rq": "reviveQueueId",
    "pt": "popTime",
    "b": "bitSet",
}
_HELD: Final = "0"
_HELD_NO_MORE: Final = 208


class BatchAckDrill:
    """One group, which has one member."""

    def __init__(
        self, drill: Drill, group: str, *, slot: Slot, name_servers: Sequence[str]
    ) -> None:
        self.drill = drill
        self._group = group
        self._rng = drill.rng
        self._consumer = PopConsumer(
            group,
            name_servers,
            slot.dial,
            settings=PopConsumerSettings(
                timeout_ms=TIMEOUT_MS,
                retry=RetryPolicy(attempts_max=1),
                instance=slot.instance_settings(),
            ),
        )
        self._held: dict[str, PoppedMessage] = {}  # by the value of the message
        self._acked: dict[str, PoppedMessage] = {}
        self._given_back: set[str] = set()

    async def run(self) -> None:
        """Pop and acknowledge some times. Raises Unsure, EndedError."""
        async with self._consumer:
            for _ in range(self._rng.randint(*ROUNDS)):
                try:
                    await self._pop()
                    await self._change_some()
                    await self._ack_some()
                except ClientError as error:
                    raise Unsure from error
                if await sleep_until_set(self.drill.ends, BACK_WITHIN_S):
                    raise EndedError

    async def _pop(self) -> None:
        """Pop; what the group had already comes only where it was given back. Raises
        ClientError."""
        queue = self.drill.queue
        popped = await self._consumer.pop(
            queue.topic,
            count_max=self._rng.choice(COUNTS),
            invisible_ms=INVISIBLE_MS,
            broker_name=queue.broker_name,
        )
        found = {_value(each): each for each in popped}
        known = (self._held.keys() | self._acked.keys()) - self._given_back
        self.drill.record(
            f"messages that {self._group} popped, though it holds or has acknowledged them",
            expected="[]",
            answered=str(sorted(known & found.keys())),
        )
        self._given_back -= found.keys()
        self._held |= found

    async def _change_some(self) -> None:
        """Prolong the time of some, whose handles are others then, and give some back. Raises
        ClientError."""
        for _ in range(self._rng.randint(0, CHANGED_MAX)):
            if not self._held:
                return
            value = self._rng.choice(sorted(self._held))
            self._held[value] = await self._consumer.change_invisible(
                self._held[value], INVISIBLE_MS
            )
        for _ in range(self._rng.randint(0, CHANGED_MAX)):
            if not self._held:
                return
            value = self._rng.choice(sorted(self._held))
            self._given_back.add(value)
            await self._consumer.change_invisible(self._held.pop(value), BACK_MS)

    async def _ack_some(self) -> None:
        """Acknowledge some of what is held in one request, and query of some others, and of some
        of these, whether they are held. Raises ClientError."""
        values = sorted(self._held)
        if not values:
            return
        count = self._rng.randint(1, len(values))
        acked = values if self._rng.random() < ALL_SHARE else self._rng.sample(values, count)
        self._rng.shuffle(acked)
        await self._ack_all([self._held[value] for value in acked])
        now = {value: self._held.pop(value) for value in acked}
        self._acked |= now
        what = f"{len(now)} acknowledged at once by {self._group}: {_places(now.values())}"
        for value in self._rng.sample(acked, min(CHECKED, len(acked))):
            await self._hold_time(what, now[value], expected=str(_HELD_NO_MORE))
        left = sorted(self._held)
        for value in self._rng.sample(left, min(CHECKED, len(left))):
            changed = await self._hold_time(what, self._held[value], expected=_HELD)
            self._held[value] = changed

    async def _ack_all(self, popped: Sequence[PoppedMessage]) -> None:
        """Acknowledge all in one request, in the client's words or with the long names of fields,
        which older clients write. Raises ClientError."""
        if self._rng.random() >= LONG_SHARE:
            await self._consumer.ack_all(popped)
            return
        broker_name = self.drill.queue.broker_name
        rows = [(each.message.queue.topic, each.handle) for each in popped]
        body = json.loads(batch_ack_body(broker_name, self._group, rows))
        body["acks"] = [
            {_LONG[name]: value for name, value in ack.items() if name in _LONG}
            for ack in body["acks"]
        ]
        await request_leader(
            self._consumer.instance,
            broker_name,
            lambda: RemotingCommand(
                code=RequestCode.BATCH_ACK_MESSAGE, body=json.dumps(body).encode()
            ),
            timeout_ms=TIMEOUT_MS,
        )

    async def _hold_time(self, what: str, popped: PoppedMessage, *, expected: str) -> PoppedMessage:
        """Change the time of a message; return it with its handle. Raises ClientError, Unsure
        where it is held against what is expected, or not held."""
        answered, changed = _HELD, popped
        try:
            changed = await self._consumer.change_invisible(popped, INVISIBLE_MS)
        except BrokerRefusedError as error:
            if error.code != _HELD_NO_MORE:
                raise
            answered = str(error.code)
        self.drill.record(
            f"change of {_places([popped])}, {what}", expected=expected, answered=answered
        )
        return changed


def _value(popped: PoppedMessage) -> str:
    return row_of_delivered(popped.message).value


def _places(popped: Iterable[PoppedMessage]) -> str:
    """Return where messages stand, each behind the start of its pop, as a batch names them."""
    handles = sorted(
        (each.handle for each in popped),
        key=lambda each: (each.retry_flag, each.queue_id, each.start_offset, each.offset),
    )
    return ", ".join(
        f"{'again ' * (each.retry_flag != '0')}{each.queue_id}: {each.start_offset}"
        f"+{each.offset - each.start_offset}"
        for each in handles
    )
