"""Drills of groups that pop and are reset: what was popped before the reset and is not acknowledged
does not come again, what stands from the new offset on comes once.

Place in the data path: `drills` makes one with each new group; each has a topic of one queue that
nobody else knows and in no manifest is.

The model: what stands in the topic is what was sent there, and an offset that the group has. A
reset drops what the group holds, whose time is so short that it would come again at once.

Source: RocketMQ AdminBrokerProcessor.resetOffset, PopMessageProcessor (resetPopOffset).
"""

from __future__ import annotations

from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import UNLISTED, Drill, EndedError, Unsure, batch_fields
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.topic_of_drill import make_topic
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body

__all__ = ["PoppedResetDrill"]

SENT: Final = 8
POPPED_MAX: Final = 6
INVISIBLE_MS: Final = 1_000
COMES_S: Final = 3.0  # within which what was held would have come again
LONG_MS: Final = 6 * 3_600_000
_NOTHING: Final = "210"


class PoppedResetDrill:
    """One group, which has no member."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group
        self._topic = f"{UNLISTED}{group}-reset"

    async def run(self) -> None:
        """Pop, reset, and pop again. Raises Unsure, EndedError."""
        rng = self.drill.rng
        await make_topic(self.drill, self._topic)
        await self._send()
        held = rng.randint(1, POPPED_MAX)
        await self._pop(held, INVISIBLE_MS, self._shown(0, held), "first")
        offset = rng.randint(0, SENT)
        await self._reset(offset)
        if await sleep_until_set(self.drill.ends, COMES_S):
            raise EndedError
        # Whatever came again would be popped with these, or behind them.
        expected = self._shown(offset, SENT) if offset < SENT else _NOTHING
        behind = f"behind {held} that were held and a reset to {offset}"
        await self._pop(2 * SENT, LONG_MS, expected, behind)
        await self._pop(2 * SENT, LONG_MS, _NOTHING, f"once more {behind}")
        raise Unsure  # another group has a topic of its own

    async def _send(self) -> None:
        items = [BatchItem(b"%d" % number, b"", 0) for number in range(SENT)]
        await self.drill.request(
            f"send {SENT} to {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._topic, self.drill.queue.broker_name),
            body=encode_batch_body(items),
            expected="0",
            changes=True,
        )

    async def _pop(self, count: int, invisible_ms: int, expected: str, when: str) -> None:
        await self.drill.request(
            f"pop of {self._topic} by {self._group}, {when}",
            RequestCode.POP_MESSAGE,
            {
                "topic": self._topic,
                "queueId": 0,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": self._group,
                "maxMsgNums": count,
                "invisibleTime": invisible_ms,
                "pollTime": 0,
                "bornTime": 0,
                "initMode": 0,
                "order": "false",
            },
            expected=expected,
            show=_show,
            changes=True,
            is_calm=True,
        )

    async def _reset(self, offset: int) -> None:
        await self.drill.request(
            f"reset of {self._group} in {self._topic} to {offset}",
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {
                "topic": self._topic,
                "group": self._group,
                "queueId": 0,
                "offset": offset,
                "timestamp": -1,
                "isForce": "true",
            },
            expected="0",
            changes=True,
        )

    @staticmethod
    def _shown(begin: int, end: int) -> str:
        return " ".join(["0", *(f"{at}:{at}" for at in range(begin, end))])


def _show(answer: RemotingCommand) -> str:
    records = [f"{each.queue_offset}:{each.body.decode()}" for each in records_of(answer)]
    return " ".join([str(answer.code), *records])
