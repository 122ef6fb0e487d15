"""Drills of filters over long stretches: pulls and pops by a tag or an expression that thousands of
messages in a row don't match, so that a broker answers without a message more than once, and those
behind them have to be found all the same; and acknowledgements of what lies far apart, or anywhere
in a long queue (`spans`).

Place in the data path: `drills` makes one, whose topic nobody else knows and in no manifest is:
what stands there is no message of the run, only the drill's. It is filled by batches, without
UNIQ_KEYs. Requests go through `drill.Drill`; a member of a push group consumes it all, too.

Source: RocketMQ DefaultMessageStore.getMessage (maxFilterMessageCount), PullMessageProcessor
(PULL_RETRY_IMMEDIATELY), PopMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.messages import PROPERTY_NUMBER, PROPERTY_VALUE
from chaos.workload.parts.common.drill import (
    UNLISTED,
    Drill,
    EndedError,
    Unsure,
    batch_fields,
)
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.handles import Handle
from chaos.workload.parts.drills.spans import (
    HELD_NO_MORE,
    INVISIBLE_MS,
    SpanDrill,
    ack_span,
    hold_held,
)
from chaos.workload.parts.drills.topic_of_drill import make_topic
from client.connection.heartbeat import ConsumeFrom, ExpressionType
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["StretchDrill"]

# Brokers examine 800 messages of which they read the properties, 8,192 by their tags, at a time.
STRETCHES: Final = (8_192, 800)
BEYOND: Final = (1, 100)  # messages by which a stretch is longer
WANTED: Final = (1, 3)  # messages at the end of each stretch
BATCH: Final = 1_000
COUNTS: Final = (1, 2, 32)
STEPS_MAX: Final = 40  # of one walk; 12 are enough
POPS_MAX: Final = 20
WALKS: Final = 2
HELD_MS: Final = 50
PUSH_HELD_MS: Final = 1_000
GIVEN_S: Final = 5.0  # within which a member has it all
_RARE, _COMMON = ("rare", 7), ("common", 0)  # tag and number of a message
_EXPRESSIONS: Final = (
    ("TAG", "rare"),
    ("TAG", "rare || none"),
    ("SQL92", f"{PROPERTY_NUMBER} > 3"),
    ("SQL92", f"{PROPERTY_NUMBER} = 7 and {PropertyName.TAGS} = 'rare'"),
    ("SQL92", f"{PROPERTY_NUMBER} not between 0 and 6"),
)
_WITH_SUBSCRIPTION: Final = 4  # bits of a pull's sysFlag
_HELD: Final = 2
_POP_FOUND_NOTHING: Final = "210"


class StretchDrill:
    """One topic of one queue, and the groups that read it; `slot` is where members dial from."""

    def __init__(
        self, drill: Drill, group: str, *, slot: Slot, name_servers: Sequence[str]
    ) -> None:
        self.drill = drill
        self._group = group
        self._slot = slot
        self._name_servers = name_servers
        self._members = 0
        self._topic = f"{UNLISTED}{group}-stretch"
        self._wanted: list[int] = []  # offsets of the messages that are not common
        self._end = 0
        self._is_filled = False
        self._pops = 0
        self._queue = MessageQueue(self._topic, drill.queue.broker_name, 0)

    async def run(self) -> None:
        """Walk through the queue some times. Raises Unsure, EndedError."""
        if not self._is_filled:
            await self._fill()
            self._is_filled = True
        for _ in range(WALKS):
            await self._walk()
        await self._pop_all()
        group = f"{self._group}-{self._pops}"
        await SpanDrill(self.drill, group, self._queue, end=self._end).run()
        await self._consume_all()

    async def _fill(self) -> None:
        if self._end:
            raise Unsure  # it was ended in the middle of that
        await make_topic(self.drill, self._topic)
        rng = self.drill.rng
        for length in STRETCHES:
            common, rare = length + rng.randint(*BEYOND), rng.randint(*WANTED)
            self._wanted += range(self._end + common, self._end + common + rare)
            kinds = [_COMMON] * common + [_RARE] * rare
            for at in range(0, len(kinds), BATCH):
                await self._send(kinds[at : at + BATCH])

    async def _send(self, kinds: Sequence[tuple[str, int]]) -> None:
        items = [
            BatchItem(b"stretch", _properties(self._end + at, *kind), 0)
            for at, kind in enumerate(kinds)
        ]
        begin, self._end = self._end, self._end + len(kinds)
        await self.drill.request(
            f"send {len(kinds)} messages to {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._topic, self.drill.queue.broker_name),
            body=encode_batch_body(items),
            expected=f"0 {begin}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('queueOffset')}",
            changes=True,
        )

    # Pulls ---------------------------------------------------------------------------------------

    async def _walk(self) -> None:
        """Pull from somewhere to the end, each time from where the answer before says."""
        rng = self.drill.rng
        kind, expression = rng.choice(_EXPRESSIONS)
        count = rng.choice(COUNTS)
        starts = (0, rng.randint(0, self._end), rng.choice(self._wanted) + 1)
        offset = rng.choice(starts)
        for _ in range(STEPS_MAX):
            if offset >= self._end:
                return
            step = _Step(self._wanted, offset, count)
            answer = await self.drill.request(
                f"pull {count} from {offset} of {self._topic} with {expression}",
                rng.choice((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)),
                self._pull_fields(kind, expression, offset, count),
                expected=step.expected,
                show=step.show,
                is_calm=True,
            )
            if answer is None:
                raise Unsure  # where it goes on, nobody knows
            offset = int(answer.ext_fields["nextBeginOffset"])
        raise EndedError

    def _pull_fields(
        self, kind: str, expression: str, offset: int, count: int
    ) -> dict[str, object]:
        held = self.drill.rng.choice((0, _HELD))
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self.drill.queue.broker_name,
            "consumerGroup": self._group,
            "queueOffset": offset,
            "maxMsgNums": count,
            "sysFlag": _WITH_SUBSCRIPTION | held,
            "commitOffset": 0,
            "suspendTimeoutMillis": HELD_MS,
            "subVersion": 0,
            "subscription": expression,
            "expressionType": kind,
        }

    async def _consume_all(self) -> None:
        """Have the member of a new group consume what it wants, as applications do. Raises
        Unsure, EndedError."""
        self._members += 1
        kind, expression = self.drill.rng.choice(_EXPRESSIONS)
        given: set[int] = set()

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            given.update(message.queue_offset for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(
            f"{self._group}-push-{self._members}",
            self._name_servers,
            listen,
            self._slot.dial,
            settings=PushConsumerSettings(
                consume_from=ConsumeFrom.FIRST,
                pull_batch_max=self.drill.rng.choice(COUNTS),
                suspend_ms=PUSH_HELD_MS,
                instance=self._slot.instance_settings(),
            ),
        )
        consumer.subscribe(self._topic, expression, ExpressionType(kind))
        try:
            await consumer.start()
        except ClientError as error:
            raise Unsure from error  # no broker was there to check the expression
        try:
            await self.drill.wait_for(
                f"offsets of {self._topic} that a member with {expression} is given",
                lambda: str(sorted(given)),
                expected=str(self._wanted),
                within_s=GIVEN_S,
            )
        finally:
            await consumer.stop()

    # Pops ----------------------------------------------------------------------------------------

    async def _pop_all(self) -> None:
        """Have a new group pop, until it has all that it wants, and acknowledge that at once."""
        self._pops += 1
        kind, expression = self.drill.rng.choice(_EXPRESSIONS)
        count = self.drill.rng.choice(COUNTS)
        left = list(self._wanted)
        held: dict[int, Handle] = {}
        for number in range(POPS_MAX):
            may_find_nothing = number < POPS_MAX - len(self._wanted)

            def show(answer: RemotingCommand, may: bool = may_find_nothing) -> str:
                found = [record.queue_offset for record in records_of(answer)]
                if not found and str(answer.code) == _POP_FOUND_NOTHING and may:
                    return "the next ones, or none yet"
                is_next = bool(found) and len(found) <= count and found == left[: len(found)]
                return "the next ones, or none yet" if is_next else f"{answer.code} {found}"

            answer = await self.drill.request(
                f"pop {count} of {self._topic} with {expression}, next is {left[0]}",
                RequestCode.POP_MESSAGE,
                self._pop_fields(kind, expression, count),
                expected="the next ones, or none yet",
                show=show,
                changes=True,
            )
            assert answer is not None
            found = [record.queue_offset for record in records_of(answer)]
            held |= {at: Handle.of_pop(answer, at, self._queue) for at in found}
            del left[: len(found)]
            if not left:
                break
        await self._ack_all(held)

    async def _ack_all(self, held: Mapping[int, Handle]) -> None:
        group = f"{self._group}-pop-{self._pops}"
        await ack_span(self.drill, self._queue, group, list(held.items()))
        for one in held.items():
            await hold_held(self.drill, self._queue, group, one, expected=HELD_NO_MORE)

    def _pop_fields(self, kind: str, expression: str, count: int) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": self.drill.rng.choice((0, -1)),
            "bname": self.drill.queue.broker_name,
            "consumerGroup": f"{self._group}-pop-{self._pops}",
            "maxMsgNums": count,
            "invisibleTime": INVISIBLE_MS,
            "pollTime": self.drill.rng.choice((0, HELD_MS)),
            "bornTime": 0,
            "initMode": 0,
            "order": "false",
            "expType": kind,
            "exp": expression,
        }


class _Step:
    """One pull of a walk: what it may pass over, and what it has to show."""

    def __init__(self, wanted: Sequence[int], offset: int, count: int) -> None:
        self._wanted = wanted
        self._offset = offset
        self._count = count
        self.expected = "passed over [], not wanted [], goes on True"

    def show(self, answer: RemotingCommand) -> str:
        found = [record.queue_offset for record in records_of(answer)]
        text = answer.ext_fields.get("nextBeginOffset", "")
        if not text.isdecimal():
            return f"{answer.code} without an offset"
        following = int(text)
        passed = [at for at in self._wanted if self._offset <= at < following and at not in found]
        strange = [at for at in found if at not in self._wanted or at < self._offset]
        goes_on = following > self._offset and len(found) <= self._count
        return f"passed over {passed}, not wanted {strange}, goes on {goes_on}"


def _properties(number: int, tag: str, value: int) -> bytes:
    named = {
        PropertyName.TAGS: tag,
        PROPERTY_NUMBER: str(value),
        PROPERTY_VALUE: f"stretch-{number}",
    }
    return "".join(f"{name}\x01{text}\x02" for name, text in named.items()).encode()
