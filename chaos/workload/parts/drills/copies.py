"""Drills of halves in an operator's hands: discarded, listed, shown, resumed from their copies, and
rolled back at their new places; and of the maintenance that changes nothing of what is there.

Place in the data path: `drills` has one run in turn with the others. The half is sent into the
queue by a producer group without members, so that nobody is asked about it, and rolled back in the
end, so that the queue stays as it is. A run that ends before leaves its half undecided: each half
has a producer group of its own, so that lists show no other.

Invariants: a copy is resumed once; the half that comes of it has a new place, the same message and
no checks; ids that name no half are refused.

Source: docs/TRANSACTIONS.md (list, show, discard, resume); RocketMQ AdminBrokerProcessor
(resumeCheckHalfMessage, cleanExpiredConsumeQueue, getColdDataFlowCtrInfo).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos.workload.messages import MessageMaker, wall_ms
from chaos.workload.parts.common.drill import Drill
from client.connection.send_codec import prepare_message
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["CopyDrill"]

_ROLLBACK: Final = 12
_REFUSED: Final = frozenset({1})
_SHOWN: Final = ("state", "topic", "queueId", "producerGroup", "uniqKey", "checks", "resumed")


class CopyDrill:
    """One half after another, from its discard to the end of its second life."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._name = f"{group}-copied"
        self._group = self._name  # of the half at hand
        self._maker = MessageMaker(prefix=f"{group}.copied", body_bytes=100, rng=drill.rng)
        self._numbers = itertools.count()

    async def run(self) -> None:
        """Discard a half, resume it, and roll it back. Raises Unsure, EndedError."""
        key = self._group = f"{self._name}-{next(self._numbers)}"
        half = await self._send(key)
        if half is None:
            return
        await self._request_wrongly()
        discarded = await self._discard(key, half, "0 with a copy")
        if discarded is None:
            return
        copy = discarded.ext_fields["msgId"]
        await self._show(key, copy, state="discarded", resumed=False)
        await self._list_copy(key, copy)
        await self._discard(f"{key} by its copy", copy, "0")
        await self._resume(f"{key} by its half", half, "1")
        await self._resume(key, copy, "0")
        await self._resume(f"{key} again", copy, "1")
        await self._show(key, copy, state="discarded", resumed=True)
        await self._discard(f"{key} by its copy, which is resumed", copy, "604")
        await self._roll_back(key)
        await self._maintain()

    async def _send(self, key: str) -> str | None:
        """Send a half; return its id."""
        queue = self.drill.queue
        message = self._maker.make(queue.topic, uniq_key=key)
        message.born_timestamp_ms = wall_ms()
        prepared = prepare_message(message, group=self._group, compression=None, transactional=True)
        command = prepared.command(queue)
        answer = await self.drill.request(
            f"send the half {key}",
            RequestCode(command.code),
            command.ext_fields,
            body=command.body,
            expected=f"0 {queue.queue_id} {key}",
            show=lambda answer: " ".join(
                [
                    str(answer.code),
                    *(str(answer.ext_fields.get(name)) for name in ("queueId", "transactionId")),
                ]
            ),
            changes=True,
        )
        return None if answer is None else answer.ext_fields["msgId"]

    # Halves and copies ---------------------------------------------------------------------------

    async def _request_wrongly(self) -> None:
        """Name what is no half, in one of all ways, to one of the three requests."""
        rng = self.drill.rng
        stored = rng.choice(self.drill.stored).offset_msg_id
        what, message_id, code = rng.choice(
            (
                ("a message", stored, "29"),
                ("what is no id", "no id", "29"),
                ("no hexadecimal id", "x" * len(stored), "29"),
                ("a place beyond the log", f"{stored[:-16]}{1 << 60:016X}", "208"),
            )
        )
        requests = (RequestCode.LEDGERMQ_SHOW_HALF, RequestCode.LEDGERMQ_DISCARD_HALF)
        await self._request(
            f"{what}", rng.choice(requests), {"msgId": message_id}, code, is_own=True
        )
        await self._resume(what, message_id, "1")
        fields = {"state": "undecided", "offset": 0, "countMax": 1} | rng.choice(
            ({"state": "committed"}, {"offset": -1}, {"countMax": 0}, {"countMax": 257})
        )
        await self._request(
            f"a list of {fields}", RequestCode.LEDGERMQ_LIST_HALVES, fields, "29", is_own=True
        )

    async def _discard(self, what: str, message_id: str, expected: str) -> RemotingCommand | None:
        def show(answer: RemotingCommand) -> str:
            return (
                f"{answer.code} with a copy" if "msgId" in answer.ext_fields else f"{answer.code}"
            )

        return await self._request(
            f"discard {what}",
            RequestCode.LEDGERMQ_DISCARD_HALF,
            {"msgId": message_id},
            expected,
            show=show,
            changes=expected.startswith("0"),
            is_own=True,
        )

    async def _resume(self, what: str, message_id: str, expected: str) -> None:
        await self._request(
            f"resume {what}",
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            {"msgId": message_id},
            expected,
            changes=expected == "0",
        )

    async def _show(self, key: str, message_id: str, **expected: object) -> None:
        await self._request(
            f"show the copy of {key}",
            RequestCode.LEDGERMQ_SHOW_HALF,
            {"msgId": message_id},
            _text_of(self._half(key, **expected)),
            show=lambda answer: (
                _text_of(json.loads(answer.body)) if answer.code == 0 else str(answer.code)
            ),
            is_own=True,
        )

    async def _list_copy(self, key: str, copy: str) -> None:
        """List what is discarded, of this producer group: its newest is the copy."""
        offset, copies = 0, []
        while True:
            page = await self._page("discarded", offset)
            if page is None:
                return
            copies += page["halves"]
            offset = page["nextOffset"]
            if page["isEnd"]:
                break
        self.drill.record(
            f"newest copy of {self._group}, listed",
            expected=f"{copy} {_text_of(self._half(key, state='discarded', resumed=False))}",
            answered=f"{copies[-1]['msgId']} {_text_of(copies[-1])}" if copies else "none",
        )

    async def _page(self, state: str, offset: int) -> Mapping[str, Any] | None:
        answer = await self._request(
            f"halves of {self._group} from {offset}, {state}",
            RequestCode.LEDGERMQ_LIST_HALVES,
            {"state": state, "offset": offset, "countMax": 256, "producerGroup": self._group},
            "0",
            is_own=True,
        )
        return None if answer is None else json.loads(answer.body)

    async def _roll_back(self, key: str) -> None:
        """Find the half that was resumed, and roll it back at its new place."""
        offset, found = 0, []
        while True:
            page = await self._page("undecided", offset)
            if page is None:
                return
            found += page["halves"]
            offset = page["nextOffset"]
            if page["isEnd"]:
                break
        self.drill.record(
            f"undecided halves of {self._group}",
            expected=_text_of(self._half(key, state="undecided", checks=0)),
            answered="; ".join(map(_text_of, found)),
        )
        (half,) = found
        await self._request(
            f"decision {_ROLLBACK} on {key}, which was resumed",
            RequestCode.END_TRANSACTION,
            {
                "tranStateTableOffset": half["offset"],
                "commitLogOffset": int(half["msgId"][-16:], 16),
                "msgId": key,
                "producerGroup": self._group,
                "commitOrRollback": _ROLLBACK,
                "fromTransactionCheck": "false",
                "bname": self.drill.queue.broker_name,
            },
            "0",
            changes=True,
        )

    def _half(self, key: str, **more: object) -> dict[str, object]:
        queue = self.drill.queue
        place = {"topic": queue.topic, "queueId": queue.queue_id}
        return {**place, "producerGroup": self._group, "uniqKey": key, **more}

    # Maintenance ---------------------------------------------------------------------------------

    async def _maintain(self) -> None:
        """Have files cleaned that are all needed, and see that the queue is as it was."""
        drill = self.drill
        await self._request("clean queues", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}, "0")
        await self._request("roll back pops", RequestCode.POP_ROLLBACK, {}, "0")
        await self._request(
            "reads of cold data",
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
            {},
            "0 {} 0",
            show=_show_cold,
        )
        for code, offset in (
            (RequestCode.GET_MIN_OFFSET, 0),
            (RequestCode.GET_MAX_OFFSET, drill.end),
        ):
            await self._request(
                f"{code.name.lower()} behind a half that was resumed",
                code,
                drill.place(),
                f"0 {offset}",
                show=lambda shown: f"{shown.code} {shown.ext_fields.get('offset')}",
            )

    async def _request(
        self,
        what: str,
        code: RequestCode,
        fields: Mapping[str, object],
        expected: str,
        *,
        show: Callable[[RemotingCommand], str] | None = None,
        changes: bool = False,
        is_own: bool = False,
    ) -> RemotingCommand | None:
        return await self.drill.request(
            what,
            code,
            fields,
            expected=expected,
            show=show,
            changes=changes,
            is_calm=expected == "1",  # whoever no longer leads may answer so, too
            may_be=_REFUSED if expected == "1" else frozenset(),
            is_own=is_own,
        )


def _text_of(half: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={half[name]}" for name in _SHOWN if name in half)


def _show_cold(answer: RemotingCommand) -> str:
    if answer.code != 0:
        return str(answer.code)
    body = json.loads(answer.body)
    return f"0 {body['runtimeTable']} {body['globalAcc']}"
