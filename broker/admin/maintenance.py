"""Maintenance that an operator starts by hand: retention, ConsumeQueue files, given-up halves.

Place in the data path: beside it. Retention decides by the same rules as at its hours
(`broker.process.housekeeping`); a half that the check-back gave up is appended to the half topic
again through the log, with its checks at 0.
Source: RocketMQ AdminBrokerProcessor (deleteExpiredCommitLog, cleanExpiredConsumeQueue,
resumeCheckHalfMessage).
"""

from __future__ import annotations

import msgspec

from broker.entry.payload import ResumeCommand
from broker.entry.topics import TRANS_CHECK_MAX_TOPIC
from broker.request.commit import commit
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.resumed import RESUMED_MAX
from broker.transaction.records import is_for_deleted_topic, resumed_record
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import ResumeCheckHalfMessageRequestHeader
from remoting.records.message import decode_record
from remoting.records.message_id import parse_offset_msg_id

__all__ = ["MaintenanceProcessor"]


class MaintenanceProcessor:
    """Requests of operators about the files and halves of this broker."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def delete_expired_log(self, request: Request) -> None:
        """Answer DELETE_EXPIRED_COMMITLOG; retention starts then and ends later, as in RocketMQ."""
        self._desk.retain_now()
        request.reply(ResponseCode.SUCCESS)

    def clean_expired_queues(self, request: Request) -> None:
        """Answer CLEAN_EXPIRED_CONSUMEQUEUE: delete units whose records the log has deleted."""
        self._replica.queues.trim(self._replica.log.status().begin_position)
        request.reply(ResponseCode.SUCCESS)

    def cold_data(self, request: Request) -> None:
        """Answer GET_COLD_DATA_FLOW_CTR_INFO with empty tables: reads of old messages are not
        throttled."""
        body = {
            "runtimeTable": {},
            "configTable": {},
            "cgColdReadThreshold": 0,
            "globalColdReadThreshold": 0,
            "globalAcc": 0,
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def pop_rollback(self, request: Request) -> None:
        """Answer POP_ROLLBACK without doing anything: RocketMQ moves POP's records out of a second
        store, and here there is only one."""
        request.reply(ResponseCode.SUCCESS)

    def resume_half(self, header: ResumeCheckHalfMessageRequestHeader, request: Request) -> None:
        """Append a half of TRANS_CHECK_MAX_TIME_TOPIC to the half topic, so that it is checked
        again (RESUME_CHECK_HALF_MESSAGE). Raises RefusedError; else the answer follows."""
        replica, leadership, message_id = self._replica, self._leadership, header.msg_id
        leadership.require_room()
        try:
            record = decode_record(replica.committed_record(parse_offset_msg_id(message_id)[2]))
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no message of the id {message_id[:64]}: {error}"
            ) from error
        if record.topic != TRANS_CHECK_MAX_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the message is one of {record.topic}, not of {TRANS_CHECK_MAX_TOPIC}",
            )
        if is_for_deleted_topic(replica, leadership, record.physical_offset, record.property_map()):
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, "the topic of the half was deleted: it has no other"
            )
        pending = resumed_record(replica, record)
        assert pending.dedupe_key is not None
        resumed = replica.state.resumed
        if (
            record.queue_offset in resumed
            or leadership.proposer.in_flight_key(pending.dedupe_key) is not None
        ):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "the half was resumed before")
        if len(resumed) >= RESUMED_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, f"{RESUMED_MAX} halves were resumed")
        commit(leadership, request, [ResumeCommand(record.queue_offset)], records=[pending])
