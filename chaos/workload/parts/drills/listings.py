"""Drills of an operator's list of halves, page by page: more than a page of them, and filters that
nearly all or hardly any of them match.

Place in the data path: `drills` makes one with each new group. It begins some hundred transactions
that nobody decides, of two producer groups without members, for a topic that nobody else knows and
in no manifest is; lists them, decides some, lists again, and rolls back the rest. Halves are sent
many at a time, without rows of their own; requests for pages go through `drill.Drill`.

The model: the places of its halves in the half topic, in their order. Each page has the next ones
that match and no other, goes on behind where it began, and comes to an end behind the last one.

Source: docs/TRANSACTIONS.md (list); RocketMQ has no such request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chaos.workload.messages import wall_ms
from chaos.workload.parts.common.drill import UNLISTED, Drill, EndedError, Unsure
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from chaos.workload.parts.drills.topic_of_drill import make_topic
from client.errors import ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.property_names import PropertyName

__all__ = ["ListingDrill"]

MANY: Final = (257, 300)  # a broker reads 256 halves for a page
FEW: Final = (1, 5)
AT_ONCE: Final = 32
COUNTS: Final = (1, 3, 32, 255, 256)
WALKS: Final = 3
STEPS_MAX: Final = 1_000  # of one walk
UNANSWERED_MAX: Final = 5
_UNDECIDED: Final = "undecided"
_PREPARED: Final = 4  # of a message's sysFlag
_ROLLBACK: Final = 12
_RIGHT: Final = "passed over [], strange [], goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """A half that is not decided: where it is, and what a decision names it by."""

    offset: int
    position: int
    key: str
    group: str


class ListingDrill:
    """One topic, and the undecided halves of it."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._topic = f"{UNLISTED}{group}-listed"
        self._many, self._few, self._nobody = (
            f"{group}-producers-{what}" for what in ("many", "few", "nobody")
        )
        self._halves: list[_Half] = []
        self._count = 0

    async def run(self) -> None:
        """Begin transactions, list and decide them. Raises Unsure, EndedError."""
        if await self._query_page(0, 1, None) is None:
            raise Unsure  # nobody there, or a broker that has no such list
        await make_topic(self.drill, self._topic)
        try:
            for group, counts in ((self._few, FEW), (self._many, MANY), (self._few, FEW)):
                await self._send(group, self._rng.randint(*counts))
            for _ in range(WALKS):
                await self._walk()
            for half in self._rng.sample(self._halves, 2):
                await self._decide(half)
            await self._walk(self._few, 32)
        finally:
            await self._roll_back()
        raise Unsure  # the next one has a topic of its own

    # Halves --------------------------------------------------------------------------------------

    async def _send(self, group: str, count: int) -> None:
        """Begin some transactions. Raises Unsure where one of them may be there, or not."""
        limit = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(self._send_one(group, limit)) for _ in range(count)]
        halves = [each.result() for each in sent]
        self._halves += sorted((each for each in halves if each), key=lambda half: half.offset)
        if None in halves or self.drill.ends.is_set():
            raise Unsure

    async def _send_one(self, group: str, limit: asyncio.Semaphore) -> _Half | None:
        self._count += 1
        key = f"{group}-{self._count}" if self._count % 2 else self.drill.client_key()
        pairs = {
            PropertyName.TRAN_MSG: "true",
            PropertyName.PGROUP: group,
            PropertyName.UNIQ_KEY: key,
        }
        fields: dict[str, object] = {
            "a": group,
            "b": self._topic,
            "c": DEFAULT_TOPIC,
            "d": 4,
            "e": 0,
            "f": _PREPARED,
            "g": wall_ms(),
            "h": 0,
            "i": "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()),
            "j": 0,
            "k": "false",
            "n": self.drill.queue.broker_name,
        }
        async with limit:
            try:
                answer, _ = await self.drill.call(
                    RequestCode.SEND_MESSAGE_V2, fields, body=b"listed"
                )
            except ClientError:
                return None
        if answer.code != 0:
            return None
        return _Half(
            offset=int(answer.ext_fields["queueOffset"]),
            position=int(answer.ext_fields["msgId"][-16:], 16),
            key=key,
            group=group,
        )

    def _decision(self, half: _Half) -> dict[str, object]:
        return {
            "tranStateTableOffset": half.offset,
            "commitLogOffset": half.position,
            "msgId": half.key,
            "producerGroup": half.group,
            "commitOrRollback": _ROLLBACK,
            "fromTransactionCheck": "false",
            "bname": self.drill.queue.broker_name,
        }

    async def _decide(self, half: _Half) -> None:
        await self.drill.request(
            f"roll back the half {half.key}",
            RequestCode.END_TRANSACTION,
            self._decision(half),
            expected="0",
            changes=True,
        )
        self._halves.remove(half)

    async def _roll_back(self) -> None:
        """Roll back what is left, as far as brokers answer: what is not stays undecided."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def end(half: _Half) -> None:
            async with limit:
                try:
                    await self.drill.call(RequestCode.END_TRANSACTION, self._decision(half))
                except ClientError:
                    return  # nobody asks for it, and nobody waits for it

        async with asyncio.TaskGroup() as tasks:
            for half in self._halves:
                tasks.create_task(end(half))

    # Pages ---------------------------------------------------------------------------------------

    async def _walk(self, group: str | None = None, count: int | None = None) -> None:
        """List from somewhere to the end, each time from where the page before says."""
        rng = self._rng
        group = group or rng.choice((None, self._few, self._few, self._many, self._nobody))
        count = count or rng.choice(COUNTS)
        offset = rng.choice((0, rng.choice(self._halves).offset, self._halves[-1].offset + 1))
        unanswered = 0
        for _ in range(STEPS_MAX):
            page = await self._query_page(offset, count, group)
            if page is None:
                unanswered += 1
                if unanswered == UNANSWERED_MAX:
                    raise Unsure
                continue
            if page["isEnd"]:
                return
            offset = page["nextOffset"]
        raise EndedError

    async def _query_page(
        self, offset: int, count: int, group: str | None
    ) -> Mapping[str, Any] | None:
        named = {"topic": self._topic} | ({} if group is None else {"producerGroup": group})
        answer = await self.drill.request(
            f"at most {count} halves from {offset} of {named}",
            RequestCode.LEDGERMQ_LIST_HALVES,
            {"state": _UNDECIDED, "offset": offset, "countMax": count, **named},
            expected=_RIGHT,
            show=lambda answer: self._show(answer, offset, count, group),
            is_own=True,
        )
        return None if answer is None else _page_of(answer)

    def _show(self, answer: RemotingCommand, offset: int, count: int, group: str | None) -> str:
        if answer.code != 0:
            return str(answer.code)
        page = _page_of(answer)
        wanted = [
            half.offset
            for half in self._halves
            if half.offset >= offset and group in {None, half.group}
        ]
        found, following = [half["offset"] for half in page["halves"]], page["nextOffset"]
        passed = [at for at in wanted if (at < following or page["isEnd"]) and at not in found]
        strange = [at for at in found if at not in wanted or at >= following]
        goes_on = (page["isEnd"] or following > offset) and found == sorted(found)
        goes_on = goes_on and len(found) <= count
        return f"passed over {passed}, strange {strange}, {'goes on' if goes_on else 'does not'}"


def _page_of(answer: RemotingCommand) -> Mapping[str, Any]:
    page: Mapping[str, Any] = json.loads(answer.body)
    return page
