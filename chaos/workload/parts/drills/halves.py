"""Drills of transactions: decisions that name a half wrongly, that are none, and that come again;
halves, and messages of their keys, that are sent again before and behind the transaction's end.

Place in the data path: `drills` has one run in turn with the others; a half is sent into the queue,
decided by raw END_TRANSACTION requests, and rolled back in the end, or discarded as an operator
does, so that the queue stays as it is. What is decided rightly, and what producers are asked, is
judged by the rules of the transactional senders.

Invariants: a decision that is refused decides nothing; the first one is in force, the same one is
acknowledged again, another one refused. A half that is sent again is answered with its first place
as long as it may be committed, and refused behind its rollback or discard, whoever leads; a message
of its key, which is no half, is refused in any case. Neither changes anything.

Source: RocketMQ EndTransactionProcessor (checkPrepareMessage); docs/DIVERGENCE.md (a half again
whose transaction was rolled back, or discarded); promises G2 and G4.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Final

from chaos.workload.messages import MessageMaker, wall_ms
from chaos.workload.parts.common.drill import Drill, Show
from chaos.workload.parts.common.shown_answers import code_of
from client.connection.send_codec import prepare_message
from client.message import Message, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["HalfDrill"]

_COMMIT: Final = 8
_ROLLBACK: Final = 12
_UNKNOWN: Final = 0
_REFUSED: Final = "1"
_CONTRARY: Final = "604"
_ENDED: Final = "13"  # a half, or its key, that can't be used any more
_FAR: Final = 1 << 40  # beyond all halves
WRONG_MAX: Final = 3
DISCARDED_SHARE: Final = 0.3


class HalfDrill:
    """One half after another, by producers of a group without members, which nobody asks."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._group = f"{group}-producers"
        self._maker = MessageMaker(prefix=f"{group}.half", body_bytes=100, rng=drill.rng)
        self._numbers = itertools.count()
        self._ended: list[Message] = []  # halves of earlier rounds

    async def run(self) -> None:
        """Send a half, and decide it wrongly and rightly. Raises Unsure, EndedError."""
        rng, drill = self.drill.rng, self.drill
        number = next(self._numbers)
        uniq_key = f"{self._group}-{number}" if number % 2 else drill.client_key()
        if self._ended:
            await self._send_ended(rng.choice(self._ended), "of an earlier round")
        message = self._maker.make(drill.queue.topic, uniq_key=uniq_key)
        message.born_timestamp_ms = wall_ms()
        answer = await self._send(message, "", f"0 {drill.queue.queue_id} {uniq_key}", _show_half)
        if answer is None:
            return
        await self._send(message, " again, undecided", _show_place(answer), _show_place)
        await self._send_plain(message, "undecided")
        position = int(answer.ext_fields["msgId"][-16:], 16)
        place: dict[str, object] = {
            "tranStateTableOffset": int(answer.ext_fields["queueOffset"]),
            "commitLogOffset": position,
            "msgId": uniq_key,
            "producerGroup": self._group,
        }
        wrong: tuple[tuple[str, dict[str, object]], ...] = (
            ("of another group", {"producerGroup": "drills-others"}),
            ("at another place", {"commitLogOffset": position + 1}),
            ("with another's key", {"msgId": f"{uniq_key}X"}),
            ("of a half that is not there", {"tranStateTableOffset": _FAR}),
        )
        for what, changed in rng.sample(wrong, rng.randint(1, WRONG_MAX)):
            decision = rng.choice((_COMMIT, _ROLLBACK))
            await self._end(f"{uniq_key} {what}", {**place, **changed}, decision, _REFUSED)
        await self._end(f"{uniq_key}, which stays open", place, _UNKNOWN, "0")
        by_hand = rng.random() < DISCARDED_SHARE
        message_id = answer.ext_fields["msgId"]
        if by_hand:
            await self._show(uniq_key, message_id, "undecided")
            await self._discard(uniq_key, message_id, "0 with a copy")
            await self._discard(f"{uniq_key} again", message_id, "0")
            await self._end(f"{uniq_key}, which was discarded", place, _ROLLBACK, _CONTRARY)
            await self._show(uniq_key, message_id, "discarded")
        else:
            await self._end(uniq_key, place, _ROLLBACK, "0")
            await self._end(f"{uniq_key} again", place, _ROLLBACK, "0")
            await self._discard(f"{uniq_key}, which is rolled back", message_id, _CONTRARY)
        await self._send_ended(message, "discarded" if by_hand else "rolled back")
        await self._end(f"{uniq_key} otherwise", place, _COMMIT, _CONTRARY)
        await drill.request(
            f"get_max_offset behind {uniq_key}",
            RequestCode.GET_MAX_OFFSET,
            drill.place(),
            expected=f"0 {drill.end}",
            show=lambda shown: f"{shown.code} {shown.ext_fields.get('offset')}",
        )
        self._ended.append(message)

    async def _send_ended(self, message: Message, how: str) -> None:
        """Send a half again whose transaction can't be committed any more, and its key."""
        await self._send(message, f" again, {how}", _ENDED, code_of)
        await self._send_plain(message, how)

    async def _discard(self, what: str, message_id: str, expected: str) -> None:
        await self.drill.request(
            f"discard {what}",
            RequestCode.LEDGERMQ_DISCARD_HALF,
            {"msgId": message_id},
            expected=expected,
            show=_show_discard,
            changes=expected != _CONTRARY,
            is_own=True,
        )

    async def _show(self, what: str, message_id: str, expected: str) -> None:
        await self.drill.request(
            f"show {what}",
            RequestCode.LEDGERMQ_SHOW_HALF,
            {"msgId": message_id},
            expected=expected,
            show=_show_state,
            is_own=True,
        )

    async def _send(
        self, message: Message, how: str, expected: str, show: Show
    ) -> RemotingCommand | None:
        """Send a half, of which the first attempt alone changes something."""
        command = self._command(message, transactional=True)
        return await self.drill.request(
            f"send the half {message.uniq_key}{how}",
            RequestCode(command.code),
            command.ext_fields,
            body=command.body,
            expected=expected,
            show=show,
            changes=not how,
        )

    async def _send_plain(self, message: Message, how: str) -> None:
        """Send a message that has the key of a half, and is none."""
        command = self._command(message, transactional=False)
        await self.drill.request(
            f"send a message of the key of the half {message.uniq_key}, {how}",
            RequestCode(command.code),
            command.ext_fields,
            body=command.body,
            expected=_ENDED,
        )

    def _command(self, message: Message, *, transactional: bool) -> RemotingCommand:
        queue: MessageQueue = self.drill.queue
        prepared = prepare_message(
            message, group=self._group, compression=None, transactional=transactional
        )
        return prepared.command(queue)

    async def _end(self, what: str, place: Mapping[str, object], decision: int, code: str) -> None:
        """Send a decision, once. A node that no longer leads may answer with the code of what is
        refused by right."""
        refused = frozenset({int(_REFUSED)}) if code == _REFUSED else frozenset[int]()
        await self.drill.request(
            f"decision {decision} on {what}",
            RequestCode.END_TRANSACTION,
            {
                **place,
                "commitOrRollback": decision,
                "fromTransactionCheck": "false",
                "bname": self.drill.queue.broker_name,
            },
            expected=code,
            changes=code != _REFUSED,
            may_be=refused,
        )


def _show_discard(answer: RemotingCommand) -> str:
    return f"{answer.code} with a copy" if "msgId" in answer.ext_fields else f"{answer.code}"


def _show_state(answer: RemotingCommand) -> str:
    """Return the state that an answer shows, its code where there is none."""
    if answer.code != 0:
        return f"{answer.code}"
    return str(json.loads(answer.body)["state"])


def _show_half(answer: RemotingCommand) -> str:
    field = answer.ext_fields.get
    return f"{answer.code} {field('queueId')} {field('transactionId')}"


def _show_place(answer: RemotingCommand) -> str:
    """Return all that tells which half was stored, but for who answers."""
    field = answer.ext_fields.get
    position = field("msgId", "")[-16:]
    return f"{_show_half(answer)} at {field('queueOffset')} in the log at {position}"
