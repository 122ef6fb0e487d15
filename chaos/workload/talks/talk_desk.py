"""What the speakers of one talk share: names, drawn values, and what was requested so far.

Place in the data path: each speaker (`talk_sends`, `talk_reads`, `talk_pops`, `talk_groups`) draws
questions from it and sends them through it.

Invariants: nothing is drawn by what was answered, so that two brokers get the same; every
name has the talk's, so that talks do not meet; a broker has put away what it stored before it is
asked for it, since RocketMQ builds queues behind its answers.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from remoting.protocol.codes import RequestCode as Code
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = [
    "APART_S",
    "BEHIND_S",
    "CLIENTS",
    "GROUPS",
    "KEYS",
    "NO_SQL",
    "QUEUES",
    "SQL",
    "TOPICS",
    "Desk",
    "Popped",
    "Requester",
    "Sent",
    "Step",
]

Requester: TypeAlias = Callable[[RemotingCommand], Awaitable[RemotingCommand]]

TOPICS: Final = 3
QUEUES: Final = 2
GROUPS: Final = 3
CLIENTS: Final = ("one", "two")  # of locks; a connection is one client's
KEYS: Final = ("red", "green", "blue")
SQL: Final = (
    "n > 3",
    "n >= 3 AND n < 7",
    "n BETWEEN 2 AND 5",
    "n NOT BETWEEN 2 AND 5",
    "c = 'red'",
    "c <> 'red'",
    "c IN ('red', 'blue')",
    "c NOT IN ('red', 'blue')",
    "c IS NULL",
    "c IS NOT NULL AND n = 4",
    "NOT (n = 4)",
    "TAGS = 'A'",
    "n > 3 OR c = 'green'",
    "n = '4'",
    "TRUE",
)
NO_SQL: Final = ("n > > 3", "c > 'blue'", "n =", "")
APART_S: Final = 0.003  # sends, so that their store times differ
BEHIND_S: Final = 0.06  # for what RocketMQ makes behind its answers
_TAGS: Final = ("A", "A || B", "B||C", "Z", "", "||", " A ", "a")
_MOVED: Final = 21
_PUT_AWAY_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Step:
    """One request and its answer. `about`: what kind it is of; `turn`: the number of the talk's
    question that it belongs to, 0 for what is made before the first."""

    turn: int
    about: str
    command: RemotingCommand
    answer: RemotingCommand


@dataclass(slots=True, kw_only=True)
class Sent:
    """Where a message is: in its queue, in the log, and by which key. Delayed messages and halves
    stand in a queue of the system's."""

    topic: str
    queue: int
    offset: int
    position: int
    uniq_key: str
    is_half: bool


@dataclass(slots=True, kw_only=True)
class Popped:
    """A message that was popped; `extra` is the handle's text."""

    topic: str
    queue: int
    group: str
    offset: int
    extra: str


@dataclass(slots=True)
class _Known:
    sent: list[Sent] = field(default_factory=list)
    halves: list[Sent] = field(default_factory=list)  # that are not ended
    popped: list[Popped] = field(default_factory=list)  # and not acknowledged


class Desk:
    """The desk of the talk `name`, with a broker of the group `broker_name`; topics begin with
    `topic_prefix`. `known` has what questions refer to."""

    def __init__(
        self, seed: int, name: str, request: Requester, *, broker_name: str, topic_prefix: str
    ) -> None:
        self.name = name
        self.broker_name = broker_name
        self.rng = random.Random(seed)
        self.request = request
        self.known = _Known()
        self.numbers = 0
        self.turn = 0
        self.steps: list[Step] = []
        self._topic_prefix = topic_prefix

    def topic_name(self, number: int) -> str:
        return f"{self._topic_prefix}{self.name}-T{number}"

    def group_name(self, number: int) -> str:
        return f"{self.name}-g{number}"

    def topic(self) -> str:
        """Draw a topic, seldom one that there is not."""
        return self.topic_name(self.rng.randrange(TOPICS + (self.rng.random() < 0.06)))

    def group(self) -> str:
        return self.group_name(self.rng.randrange(GROUPS + (self.rng.random() < 0.03)))

    def pulling_group(self) -> str:
        """Draw a group that commits its offsets itself."""
        return self.group_name(self.rng.randrange(GROUPS - 1))

    def popping_group(self) -> str:
        """The group that pops. RocketMQ stores where its pops begin, and corrects offsets."""
        return self.group_name(GROUPS - 1)

    def client(self, which: str) -> str:
        return f"{self.name}@{which}"

    def queue(self) -> int:
        if self.rng.random() < 0.05:
            return self.rng.choice((-1, QUEUES, 99))
        return self.rng.randrange(QUEUES)

    def odd(self, usual: Any, *odd: Any, share: float = 0.2) -> Any:
        return self.rng.choice(odd) if self.rng.random() < share else usual

    def one_of(self, things: list[Any]) -> Any:
        """Draw one of what was seen so far, by a number that does not depend on how many those
        are; None where there is none."""
        drawn = self.rng.random()
        return things[int(drawn * len(things))] if things else None

    def offset_near(self) -> int:
        drawn = self.rng.random()
        if drawn < 0.7:
            return self.rng.randrange(12)
        return self.rng.choice((0, 40, 1_000))

    def subscription(self) -> dict[str, Any]:
        kind = self.rng.random()
        if kind < 0.5:
            return {"subscription": "*", "expressionType": "TAG"}
        if kind < 0.75:
            text = self.rng.choice(_TAGS)
            return {"subscription": text, "expressionType": "TAG"}
        return {"subscription": self.rng.choice(SQL), "expressionType": "SQL92"}

    async def step(
        self, about: str, code: int, fields: Mapping[str, Any], body: bytes = b""
    ) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        command = RemotingCommand(code=int(code), ext_fields=texts, body=body)
        answer = await self.request(command)
        self.add(about, command, answer)
        return answer

    def add(self, about: str, command: RemotingCommand, answer: RemotingCommand) -> None:
        self.steps.append(Step(turn=self.turn, about=about, command=command, answer=answer))

    async def follow(self, answer: RemotingCommand, code: int, fields: Mapping[str, Any]) -> None:
        """Pull where the answer of a pull has sent its client, as clients do: RocketMQ tells of a
        reset once, ledgermq until it is followed. Of no interest is what is read there."""
        if answer.code == _MOVED:
            moved = {**fields, "queueOffset": answer.ext_fields["nextBeginOffset"], "sysFlag": 4}
            texts = {name: str(value) for name, value in moved.items()}
            await self.request(RemotingCommand(code=int(code), ext_fields=texts))

    async def stored_ms(self, sent: Sent) -> int:
        """Return when the broker stored a message, by its own clock; 0 where it has it no more."""
        fields = {"offset": str(sent.position)}
        answer = await self.request(
            RemotingCommand(code=int(Code.VIEW_MESSAGE_BY_ID), ext_fields=fields)
        )
        return decode_records(answer.body)[0].store_timestamp_ms if answer.code == 0 else 0

    async def put_away(self, sent: Sent) -> None:
        """Wait until what was stored stands in its queue."""
        fields = {"topic": sent.topic, "queueId": str(sent.queue)}
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _PUT_AWAY_S
        while loop.time() < end_s:
            command = RemotingCommand(code=int(Code.GET_MAX_OFFSET), ext_fields=fields)
            answer = await self.request(command)
            if answer.code or int(answer.ext_fields.get("offset", -1)) > sent.offset:
                return
            await asyncio.sleep(APART_S)

    def uniq_key(self) -> str:
        self.numbers += 1
        return self.key_of(self.numbers)

    def key_of(self, number: int) -> str:
        # Brokers know messages by these, whatever their topic.
        return f"{self.key_part}{number:016X}"

    @property
    def key_part(self) -> str:
        """What every UNIQ_KEY of the talk begins with."""
        return f"{zlib.crc32(self.name.encode()):016X}"
