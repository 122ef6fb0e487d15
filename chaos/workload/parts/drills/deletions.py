"""Drills of topics that are deleted while messages of theirs wait beside others': delayed by a
level or to a time, undecided in a transaction; others' are popped, too.

Place in the data path: `drills` makes one with each new group, whose two topics of one queue nobody
else knows and in no manifest are. Both have messages that are due at one time, one by one in turn;
then one of the topics is deleted, and made again at once or later: a run's topics are there at its
end, since a record that has no unit in a ConsumeQueue is taken for a fault of the store. Requests
go through `drill.Drill`.

The model: what waits for the topic that stays comes once, in the order of its level; what waits for
the other one never comes, into the next topic of its name neither. That nothing comes twice holds
at any time, that everything has come in calm times only.

Source: RocketMQ ScheduleMessageService, TimerMessageStore, PopReviveService; decision 15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE, wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import UNLISTED, Drill, EndedError, Unsure
from chaos.workload.parts.common.leader_requests import (
    DEFAULT_TOPIC,
    create_topic_command,
    delete_topic_command,
)
from chaos.workload.parts.common.shown_answers import records_of
from client.errors import ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import pop_retry_topic
from remoting.records.property_names import PropertyName

__all__ = ["DeletionDrill"]

DELAYED: Final = (4, 10)
POPPED: Final = 3
WAIT_MS: Final = 1_000  # for which everything waits: level 1, a timer, the time of a pop
DUE_S: Final = 1.0
LATE_S: Final = 1.5  # what is due has come by then, in calm times
POLL_S: Final = 0.2
AGAIN_S: Final = 30.0  # within which a leader is there that makes a topic
STAYS_S: Final = 0.5  # for which nothing more may come
READ_MAX: Final = 64
_PREPARED: Final = 4  # of a message's sysFlag
_COMMIT: Final = 8
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag
_NOTHING: Final = frozenset({17, 19})
_NONE: Final = "twice [], strange [], in order True"


class DeletionDrill:
    """One topic that stays, one that is deleted, and a group that pops both."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._group = group
        self._retained, self._gone = (f"{UNLISTED}{group}-{what}" for what in ("kept", "gone"))
        self._sent = 0
        self._is_deleting = False

    async def run(self) -> None:
        """Have messages wait, delete, and see what comes. Raises Unsure, EndedError."""
        try:
            await self._delete_and_see()
        finally:
            if self._is_deleting:
                await self._make_again()

    async def _make_again(self) -> None:
        """Make the topic that was deleted, whatever has ended the drill."""
        command = create_topic_command(self._gone, queues=1, perm=6)
        async with asyncio.timeout(AGAIN_S):
            while True:
                try:
                    await self.drill.call(RequestCode(command.code), command.ext_fields)
                except ClientError:
                    await asyncio.sleep(POLL_S)
                else:
                    return

    async def _delete_and_see(self) -> None:
        for topic in (self._retained, self._gone):
            await self._make(topic)
        popped = await self._pop()
        waits = self._rng.choice(
            ((PropertyName.DELAY, "1"), (PropertyName.TIMER_DELAY_MS, str(WAIT_MS)))
        )
        half = await self._send_half() if self._rng.random() < 0.5 else None
        wanted = []
        for topic in self._turns():
            value = await self._send(topic, *waits)
            if topic == self._retained:
                wanted.append(value)
        due_s = asyncio.get_running_loop().time() + DUE_S
        self._is_deleting = True
        await self._change(delete_topic_command(self._gone), f"delete {self._gone}")
        is_remade = self._rng.random() < 0.5
        if is_remade:
            await self._make(self._gone)
        if half is not None:
            await self._commit(half)
        if await sleep_until_set(self.drill.ends, due_s - asyncio.get_running_loop().time()):
            raise EndedError
        is_level = waits[0] == PropertyName.DELAY
        await self._wait(self._retained, wanted, before=POPPED, is_level=is_level)
        await self._wait(pop_retry_topic(self._retained, self._group), popped)
        if await sleep_until_set(self.drill.ends, STAYS_S):
            raise EndedError
        await self._read(self._retained, wanted, before=POPPED, is_level=is_level)
        await self._read(pop_retry_topic(self._retained, self._group), popped)
        if not is_remade:
            await self._make(self._gone)
        begin = await self._begin(self._gone)
        await self._read(self._gone, [], before=begin)
        await self._hold_times(self._gone, begin)
        raise Unsure  # the next one has topics of its own

    def _turns(self) -> list[str]:
        """Draw for which topic each message waits: both in turn, or one behind the other."""
        count = self._rng.randint(*DELAYED)
        topics = [self._rng.choice((self._retained, self._gone)) for _ in range(count)]
        return [self._gone, *topics, self._retained]

    # What waits ----------------------------------------------------------------------------------

    async def _make(self, topic: str) -> None:
        await self._change(create_topic_command(topic, queues=1, perm=6), f"make topic {topic}")

    async def _change(self, command: RemotingCommand, what: str) -> None:
        await self.drill.request(
            what, RequestCode(command.code), command.ext_fields, expected="0", changes=True
        )

    async def _send(self, topic: str, *waits: str, sys_flag: int = 0) -> str:
        """Send one message, which waits by a property; return its value."""
        await self._request_send(topic, waits, sys_flag)
        return self._value()

    def _value(self) -> str:
        return f"{self._group}.waits-{self._sent}"

    async def _request_send(
        self, topic: str, waits: Sequence[str], sys_flag: int
    ) -> RemotingCommand:
        self._sent += 1
        properties = [(PROPERTY_VALUE, self._value()), *zip(waits[::2], waits[1::2], strict=True)]
        answer = await self.drill.request(
            f"send {self._value()} to {topic}, which waits by {waits}",
            RequestCode.SEND_MESSAGE_V2,
            {
                "a": f"{self._group}-producers",
                "b": topic,
                "c": DEFAULT_TOPIC,
                "d": 4,
                "e": 0,
                "f": sys_flag,
                "g": wall_ms(),
                "h": 0,
                "i": "".join(f"{name}\x01{value}\x02" for name, value in properties),
                "j": 0,
                "k": "false",
                "n": self.drill.queue.broker_name,
            },
            body=b"waits",
            expected="0",
            changes=True,
        )
        assert answer is not None
        return answer

    async def _send_half(self) -> dict[str, object]:
        """Send a half for the topic that goes; return what a decision names it by."""
        key, group = f"{self._group}-half", f"{self._group}-producers"
        marks = (PropertyName.TRAN_MSG, "true", PropertyName.PGROUP, group)
        answer = await self._request_send(
            self._gone, (*marks, PropertyName.UNIQ_KEY, key), sys_flag=_PREPARED
        )
        return {
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": int(answer.ext_fields["msgId"][-16:], 16),
            "msgId": key,
            "producerGroup": group,
            "fromTransactionCheck": "false",
            "bname": self.drill.queue.broker_name,
        }

    async def _commit(self, half: dict[str, object]) -> None:
        """Commit the half of what was deleted, whatever is answered."""
        await self.drill.request(
            f"commit a half of {self._gone}",
            RequestCode.END_TRANSACTION,
            half | {"commitOrRollback": _COMMIT},
            expected="any code",
            show=lambda _: "any code",
        )

    async def _pop(self) -> list[str]:
        """Have the group pop some of the topic that stays; return what comes again."""
        values = [await self._send(self._retained) for _ in range(POPPED)]
        await self.drill.request(
            f"pop of {self._retained}",
            RequestCode.POP_MESSAGE,
            {
                "topic": self._retained,
                "queueId": 0,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": self._group,
                "maxMsgNums": POPPED,
                "invisibleTime": WAIT_MS,
                "pollTime": 0,
                "bornTime": 0,
                "initMode": 0,
                "order": "false",
            },
            expected=f"0 {values}",
            show=lambda answer: f"{answer.code} {_values(answer)}",
            changes=True,
        )
        return values

    # What comes ----------------------------------------------------------------------------------

    async def _wait(
        self, topic: str, wanted: Sequence[str], *, before: int = 0, is_level: bool = False
    ) -> None:
        """Read until all of it has come, which it has to, in calm times."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LATE_S
        while loop.time() < until_s:
            shown = await self._read(topic, wanted, before=before, is_level=is_level)
            if set(wanted) <= set(shown):
                return
            if await sleep_until_set(self.drill.ends, POLL_S):
                raise EndedError

        def show(answer: RemotingCommand) -> str:
            return f"missing {sorted(set(wanted) - set(_values(answer)))}"

        await self._pull(
            f"all of {topic} that was due {LATE_S} s ago",
            (topic, before),
            "missing []",
            show,
            is_calm=True,
        )

    async def _read(
        self, topic: str, wanted: Sequence[str], *, before: int = 0, is_level: bool = False
    ) -> list[str]:
        """Read what has come behind the first messages; return it."""

        def show(answer: RemotingCommand) -> str:
            if answer.code not in {0, *_NOTHING}:
                return str(answer.code)
            values = _values(answer)
            twice = sorted({value for value in values if values.count(value) > 1})
            strange = [value for value in values if value not in wanted]
            in_order = not is_level or values == sorted(values, key=list(wanted).index)
            return f"twice {twice}, strange {strange}, in order {strange or twice or in_order}"

        answer = await self._pull(f"what has come into {topic}", (topic, before), _NONE, show)
        return [] if answer is None else _values(answer)

    async def _begin(self, topic: str) -> int:
        """Return where the queue of a topic begins that was made again: brokers may count on."""
        answer = await self.drill.request(
            f"begin of {topic}",
            RequestCode.GET_MIN_OFFSET,
            {"topic": topic, "queueId": 0, "bname": self.drill.queue.broker_name},
            expected="0",
        )
        if answer is None:
            raise Unsure
        return int(answer.ext_fields["offset"])

    async def _hold_times(self, topic: str, begin: int) -> None:
        """Hold when the queue's first message was stored, and where a search by time finds it:
        there is none as yet; then two, and what was there before counts no more."""
        await self._query_earliest(topic, "-1")
        values = [await self._send(topic) for _ in range(2)]
        answer = await self._pull(
            f"what was sent to {topic} since",
            (topic, begin),
            f"0 {values}",
            lambda answer: f"{answer.code} {_values(answer)}",
        )
        if answer is None:
            raise Unsure
        first_ms = records_of(answer)[0].store_timestamp_ms
        await self._query_earliest(topic, str(first_ms))
        for at_ms in (0, first_ms):
            await self.drill.request(
                f"first message of {topic} at {at_ms} or later",
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                {"topic": topic, "queueId": 0, "timestamp": at_ms, "boundaryType": "LOWER"},
                expected=f"0 {begin}",
                show=lambda answer: f"{answer.code} {answer.ext_fields.get('offset')}",
            )

    async def _query_earliest(self, topic: str, expected: str) -> None:
        await self.drill.request(
            f"earliest time of {topic}",
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            {"topic": topic, "queueId": 0, "bname": self.drill.queue.broker_name},
            expected=f"0 {expected}",
            show=lambda answer: f"{answer.code} {answer.ext_fields.get('timestamp')}",
        )

    async def _pull(
        self,
        what: str,
        place: tuple[str, int],
        expected: str,
        show: Callable[[RemotingCommand], str],
        *,
        is_calm: bool = False,
    ) -> RemotingCommand | None:
        """Pull from a topic and an offset on."""
        topic, offset = place
        return await self.drill.request(
            what,
            RequestCode.PULL_MESSAGE,
            {
                "topic": topic,
                "queueId": 0,
                "bname": self.drill.queue.broker_name,
                "consumerGroup": f"{self._group}-reader",
                "queueOffset": offset,
                "maxMsgNums": READ_MAX,
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
                "expressionType": "TAG",
            },
            expected=expected,
            show=show,
            is_calm=is_calm,
        )


def _values(answer: RemotingCommand) -> list[str]:
    return [record.property_map().get(PROPERTY_VALUE, "?") for record in records_of(answer)]
