"""Drills of what brokers refuse: requests beyond limits, of topics and queues that are not there,
sends that contradict themselves. Each is refused with a code of its own, and changes nothing.

Place in the data path: `drills` has it run in turn with the others, which would see what changed:
a message more in the queue, an offset, a topic.

Source: RocketMQ SendMessageProcessor, PullMessageProcessor, PopMessageProcessor,
AckMessageProcessor, ChangeInvisibleTimeProcessor, ConsumerManageProcessor, MessageDecoder;
docs/DIVERGENCE.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.workload.parts.common.drill import Drill
from remoting.protocol.codes import RequestCode
from remoting.records.property_names import PropertyName

__all__ = ["RefusalDrill"]

STEPS: Final = 3
NO_TOPIC: Final = "drills-no-such-topic"
_ILLEGAL: Final = "13"
_NO_PERMISSION: Final = "16"
_NO_TOPIC: Final = "17"
_BAD_EXPRESSION: Final = "23"
_BAD_PARAMETER: Final = "29"
_NO_MESSAGE: Final = "208"
_FAR: Final = 1 << 40  # beyond all offsets
_SEPARATOR: Final = ("\x01", "\x02")
_PREPARED: Final = 4  # of a send's sysFlag


class RefusalDrill:
    """Requests that are refused, by the name of `group` where they need one."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = group

    async def run(self) -> None:
        """Send some. Raises Unsure, EndedError."""
        for _ in range(STEPS):
            if self.drill.rng.random() < 0.5:
                await self._send()
            else:
                await self._read()

    async def _send(self) -> None:
        """Send what contradicts itself, or is too large, or goes where nothing may go."""
        rng = self.drill.rng
        one = rng.choice(self.drill.stored)
        fields, body = dict(one.command.ext_fields), one.command.body
        # A key of its own: what is stored already would be answered with its place.
        keys = (f"{self._group}-{rng.getrandbits(60):x}", self.drill.client_key())
        properties = {PropertyName.UNIQ_KEY: rng.choice(keys), "lmq_value": "refused"}
        what, code, changed, more = rng.choice(
            (
                ("to a queue that is not there", _BAD_PARAMETER, {"e": "4711"}, {}),
                ("to a topic with an illegal name", _BAD_PARAMETER, {"b": "no topic!"}, {}),
                (
                    "to a topic with a foreign name",
                    _BAD_PARAMETER,
                    {"b": "größe"},
                    {},
                ),
                ("to the broker's own topic", _NO_PERMISSION, {"b": "SCHEDULE_TOPIC_XXXX"}, {}),
                ("with too many properties", _ILLEGAL, {}, {"u_long": "x" * 33_000}),
                ("with a level that is no number", _ILLEGAL, {}, {PropertyName.DELAY: "soon"}),
                (
                    "for longer than timers may wait",
                    _ILLEGAL,
                    {},
                    {PropertyName.TIMER_DELAY_SEC: rng.choice(("99999999", "300001"))},
                ),
                (
                    "at a time that is no number",
                    _ILLEGAL,
                    {},
                    {PropertyName.TIMER_DELIVER_MS: "noon"},
                ),
                ("prepared by its flag alone", _ILLEGAL, {"f": str(_PREPARED)}, {}),
                ("under too long a key", _ILLEGAL, {}, {PropertyName.UNIQ_KEY: "k" * 4_000}),
            )
        )
        await self.drill.request(
            f"send {what}",
            RequestCode.SEND_MESSAGE_V2,
            fields | changed | {"i": _text(properties | more)},
            body=body,
            expected=code,
            is_calm=True,
            from_other=rng.random() < 0.5,  # refusals quote what they refuse, in either encoding
        )

    async def _read(self) -> None:
        """Read, or commit, where there is nothing to."""
        group: dict[str, object] = {"consumerGroup": self._group}
        pull = group | {
            "queueOffset": 0,
            "maxMsgNums": 1,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 0,
        }
        pop = group | {"maxMsgNums": 1, "invisibleTime": 1_000, "pollTime": 0, "initMode": 0}
        held = group | {"extraInfo": "no handle", "offset": 0, "invisibleTime": 1_000}
        elsewhere: dict[str, object] = {"topic": NO_TOPIC}
        too_far: dict[str, object] = {"queueId": 4_711}
        requests: tuple[tuple[RequestCode, dict[str, object], str], ...] = (
            (RequestCode.PULL_MESSAGE, pull | elsewhere, _NO_TOPIC),
            (RequestCode.PULL_MESSAGE, pull | too_far, _BAD_PARAMETER),
            (
                RequestCode.PULL_MESSAGE,
                pull | {"expressionType": "SQL92", "subscription": "a = = 1"},
                _BAD_EXPRESSION,
            ),
            (RequestCode.POP_MESSAGE, pop | elsewhere, _NO_TOPIC),
            (RequestCode.POP_MESSAGE, pop | {"expType": "SQL92", "exp": "a >"}, _BAD_EXPRESSION),
            (RequestCode.PEEK_MESSAGE, pop | elsewhere, _NO_TOPIC),
            (RequestCode.PEEK_MESSAGE, pop | too_far, _BAD_PARAMETER),
            (RequestCode.NOTIFICATION, pop | elsewhere, _NO_TOPIC),
            (RequestCode.NOTIFICATION, pop | too_far, _BAD_PARAMETER),
            (RequestCode.UPDATE_CONSUMER_OFFSET, group | {"commitOffset": -1}, _BAD_PARAMETER),
            (
                RequestCode.UPDATE_CONSUMER_OFFSET,
                group | {"commitOffset": 0, **elsewhere},
                _NO_TOPIC,
            ),
            (RequestCode.POP_MESSAGE, pop | {"consumerGroup": "no group!"}, _BAD_PARAMETER),
            (RequestCode.POP_MESSAGE, pop | {"consumerGroup": "größe"}, _BAD_PARAMETER),
            (RequestCode.PULL_MESSAGE, pull | {"topic": "größe"}, _NO_TOPIC),
            (RequestCode.ACK_MESSAGE, held | elsewhere, _NO_TOPIC),
            (RequestCode.ACK_MESSAGE, held | too_far, _ILLEGAL),
            (RequestCode.ACK_MESSAGE, held | {"offset": _FAR}, _NO_MESSAGE),
            (RequestCode.ACK_MESSAGE, held, _BAD_PARAMETER),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, held | too_far, _ILLEGAL),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, held | {"offset": _FAR}, _NO_MESSAGE),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, held, _BAD_PARAMETER),
            (
                RequestCode.CONSUMER_SEND_MSG_BACK,
                {"offset": 0, "group": "no group!", "delayLevel": 0},
                _BAD_PARAMETER,
            ),
        )
        code, fields, expected = self.drill.rng.choice(requests)
        wrong = {name: fields[name] for name in ("topic", "queueId") if name in fields}
        await self.drill.request(
            f"{code.name.lower()} refused, {wrong or sorted(fields)[:3]}",
            code,
            self.drill.place() | fields,
            expected=expected,
            is_calm=True,
            from_other=self.drill.rng.random() < 0.5,
        )


def _text(properties: Mapping[str, str]) -> str:
    name_ends, value_ends = _SEPARATOR
    return "".join(f"{name}{name_ends}{value}{value_ends}" for name, value in properties.items())
