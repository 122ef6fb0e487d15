"""Requests of operators about transactions: list halves, show one, discard one.

Place in the data path: LEDGERMQ_LIST_HALVES and LEDGERMQ_SHOW_HALF are answered by a leader that
has just proved itself; LEDGERMQ_DISCARD_HALF goes through the log, as the discard of the check-back
does. A half is named by its offset message id, as in RocketMQ's RESUME_CHECK_HALF_MESSAGE, which
`broker.admin.maintenance` serves. RocketMQ has no request for any of the three.

Invariants: the first decision on a half wins, an operator's among them: a discard of what is
decided otherwise is refused (604), the same again is answered as done. One request reads at most
_READ_MAX records, however many halves there are: whoever lists goes on at `nextOffset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from broker.entry.payload import UNIT, DiscardCommand
from broker.entry.topics import HALF_TOPIC, TRANS_CHECK_MAX_TOPIC
from broker.request.commit import answer_done, commit
from broker.request.leadership import Leadership
from broker.request.read_point import answer_at_read_point
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from broker.transaction.end_transaction import PAST
from broker.transaction.records import discarded_record, is_for_deleted_topic
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import HalfRequestHeader, ListHalvesRequestHeader
from remoting.records.message import MessageRecord, decode_record
from remoting.records.message_id import parse_offset_msg_id
from remoting.records.property_names import PropertyName

__all__ = ["HalfAdminProcessor"]

_READ_MAX: Final = 256  # records of one request
_PAGE_SIZE_MAX: Final = 1 << 20
_WAITING_MAX: Final = 64
_OF_STATE: Final = {"undecided": HALF_TOPIC, "discarded": TRANS_CHECK_MAX_TOPIC}
_Place = tuple[int, int, int]  # queue offset, log position, size


class HalfAdminProcessor:
    """Handlers of the three requests."""

    def __init__(self, replica: Replica, leadership: Leadership, tasks: TaskOwner) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks

    def list(self, header: ListHalvesRequestHeader, request: Request) -> None:
        """Answer LEDGERMQ_LIST_HALVES with a page of halves. Raises RefusedError."""
        if header.state not in _OF_STATE:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"state {header.state[:40]!r}: there are {' and '.join(_OF_STATE)} halves",
            )
        if not (header.offset >= 0 and 0 < header.count_max <= _READ_MAX):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"offset {header.offset}, countMax {header.count_max}: an offset is at least 0, and"
                f" 1 to {_READ_MAX} halves are a page",
            )
        self._at_read_point(request, partial(self._answer_list, header))

    def show(self, header: HalfRequestHeader, request: Request) -> None:
        """Answer LEDGERMQ_SHOW_HALF with what is known of one half. Raises RefusedError."""
        self._at_read_point(request, partial(self._answer_show, header))

    def discard(self, header: HalfRequestHeader, request: Request) -> None:
        """Discard an undecided half into TRANS_CHECK_MAX_TIME_TOPIC (LEDGERMQ_DISCARD_HALF).

        Raises RefusedError; else the answer follows, with the id of the half's copy there.
        """
        if not self._discard(header, request):
            # A deposed leader may not know of the half, or of its decision.
            self._at_read_point(request, partial(self._answer_undiscarded, header))

    def _at_read_point(self, request: Request, answer: Any) -> None:
        self._tasks.answer(request, lambda: answer_at_read_point(self._leadership, request, answer))

    # Lists -------------------------------------------------------------------------------------

    def _answer_list(self, header: ListHalvesRequestHeader, request: Request) -> None:
        found: list[dict[str, Any]] = []
        next_offset, size, reads = header.offset, 0, 0
        places = self._places(header)
        for queue_offset, position, length in islice(places, _READ_MAX):
            next_offset, reads = queue_offset + 1, reads + 1
            shown = self._shown_at(header.state, queue_offset, position, length)
            if not _is_wanted(header, shown):
                continue
            found.append(shown)
            size += sum(len(value) for value in shown.values() if isinstance(value, str))
            if len(found) == header.count_max or size > _PAGE_SIZE_MAX:
                break
        body = {
            "halves": found,
            "nextOffset": next_offset,
            "isEnd": next(places, None) is None,
            "undecided": len(self._replica.state.halves),
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def _places(self, header: ListHalvesRequestHeader) -> Iterator[_Place]:
        """Iterate over where the halves of a state stand, from the header's offset on."""
        if header.state == "undecided":
            for half in self._replica.state.halves.undecided_from(header.offset):
                yield half.queue_offset, half.position, half.size
            return
        queue = self._replica.queues.find(TRANS_CHECK_MAX_TOPIC, 0)
        if queue is None:
            return
        at = max(header.offset, queue.min_offset)
        while units := queue.read(at, _READ_MAX):
            for position, size, _ in UNIT.iter_unpack(units):
                yield at, position, size
                at += 1

    def _shown_at(self, state: str, queue_offset: int, position: int, size: int) -> dict[str, Any]:
        replica = self._replica
        try:
            record = decode_record(replica.read(position, size))
        except RefusedError as refused:  # damaged here, and fetched from another replica
            return {
                "state": state,
                "msgId": f"{replica.store_host_hex}{position:016X}",
                "offset": queue_offset,
                "unreadable": refused.remark,
            }
        return self._shown(record, state)

    def _shown(self, record: MessageRecord, state: str) -> dict[str, Any]:
        replica, properties = self._replica, record.property_map()
        half = replica.state.halves.get(record.queue_offset) if state == "undecided" else None
        shown: dict[str, Any] = {
            "state": state,
            "msgId": record.offset_msg_id,
            "offset": record.queue_offset,
            "topic": properties.get(PropertyName.REAL_TOPIC, ""),
            "queueId": int(properties.get(PropertyName.REAL_QUEUE_ID, "0")),
            "producerGroup": properties.get(PropertyName.PGROUP, ""),
            "uniqKey": properties.get(PropertyName.UNIQ_KEY, ""),
            "keys": properties.get(PropertyName.KEYS, ""),
            "tags": properties.get(PropertyName.TAGS, ""),
            "bornMs": record.born_timestamp_ms,
            "storedMs": record.store_timestamp_ms,
            "ageMs": max(0, replica.clock_ms() - record.store_timestamp_ms),
            "bodySize": len(record.body),
        }
        if half is not None:
            shown["checks"] = half.checks
        if record.topic == TRANS_CHECK_MAX_TOPIC:
            shown["resumed"] = record.queue_offset in replica.state.resumed
        return shown

    # One half ----------------------------------------------------------------------------------

    def _answer_show(self, header: HalfRequestHeader, request: Request) -> None:
        record = self._record(header.msg_id)
        if record.topic == TRANS_CHECK_MAX_TOPIC:
            state = "discarded"
        elif self._replica.state.halves.get(record.queue_offset) is not None:
            state = "undecided"
        else:
            decision = self._replica.state.halves.decision(record.queue_offset)
            state = "ended, long ago" if decision is None else PAST[decision]
        shown = self._shown(record, state) | {"properties": record.property_map()}
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(shown))

    def _record(self, message_id: str) -> MessageRecord:
        """Return the record of a half, or of its copy among the discarded. Raises RefusedError."""
        try:
            position = parse_offset_msg_id(message_id)[2]
            record = decode_record(self._replica.committed_record(position))
        except RecordError as error:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"{message_id[:64]!r} names no message: {error}"
            ) from error
        except LookupError as error:
            raise RefusedError(
                ResponseCode.NO_MESSAGE, f"no message of the id {message_id[:64]}: {error}"
            ) from error
        if record.topic not in {HALF_TOPIC, TRANS_CHECK_MAX_TOPIC}:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"the message is one of {record.topic}, and no half"
            )
        return record

    def _discard(self, header: HalfRequestHeader, request: Request) -> bool:
        """Propose the discard, or wait for the decision in flight; False where the half is not
        undecided. Raises RefusedError."""
        replica, leadership = self._replica, self._leadership
        record = self._record(header.msg_id)
        if record.topic == TRANS_CHECK_MAX_TOPIC:
            return False
        in_flight = leadership.proposer.in_flight_decision(record.queue_offset)
        if in_flight is not None:
            if len(in_flight.waiting) >= _WAITING_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_BUSY, "too many decisions wait for this transaction"
                )
            in_flight.waiting += (partial(self._discard_again, header, request),)
            return True
        if replica.state.halves.get(record.queue_offset) is None:
            return False
        properties = record.property_map()
        if is_for_deleted_topic(replica, leadership, record.physical_offset, properties):
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                "the topic of the half was deleted: the check-back rolls it back",
            )
        copy = discarded_record(replica, record)
        commit(
            leadership,
            request,
            [DiscardCommand(record.queue_offset)],
            records=[copy],
            answer=lambda: request.reply(
                ResponseCode.SUCCESS,
                fields={"msgId": f"{replica.store_host_hex}{copy.position:016X}"},
            ),
            half_queue_offset=record.queue_offset,
        )
        return True

    def _discard_again(self, header: HalfRequestHeader, request: Request) -> None:
        """Handle a request that has waited; leadership may be lost by now."""
        try:
            self._leadership.require_leader()
            self.discard(header, request)
        except RefusedError as refused:
            request.refuse(refused)

    def _answer_undiscarded(self, header: HalfRequestHeader, request: Request) -> None:
        """Answer a discard of a half that is decided. Raises RefusedError."""
        if self._discard(header, request):
            return
        record = self._record(header.msg_id)
        is_copy = record.topic == TRANS_CHECK_MAX_TOPIC
        known = "discard" if is_copy else self._replica.state.halves.decision(record.queue_offset)
        if is_copy and record.queue_offset in self._replica.state.resumed:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION,
                "transaction already discarded, and resumed: it has another id since",
            )
        if known == "discard":
            answer_done(self._leadership, request, "transaction was discarded already")
            return
        became = "ended, long ago" if known is None else PAST[known]
        raise RefusedError(ResponseCode.ILLEGAL_OPERATION, f"transaction already {became}")


def _is_wanted(header: ListHalvesRequestHeader, shown: dict[str, Any]) -> bool:
    """Return whether a half is of the topic and the group that the header names; one that can't be
    read is of all."""
    if "unreadable" in shown:
        return True
    wants_topic = header.topic is None or header.topic == shown["topic"]
    return wants_topic and header.producer_group in {None, shown["producerGroup"]}
