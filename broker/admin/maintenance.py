"""What an operator asks for by hand: retention now, ConsumeQueue files, halves that were given up.

Place in the data path: beside it. Retention decides as at its hours
(`broker.process.housekeeping`); a half that the check-back gave up goes through the log into the
half topic again, its checks at 0.
Source: RocketMQ AdminBrokerProcessor (deleteExpiredCommitLog, cleanExpiredConsumeQueue,
resumeCheckHalfMessage).
"""

from __future__ import annotations

import msgspec

from broker.entry.payload import ResumeCommand
from broker.entry.topics import TRANS_CHECK_MAX_TOPIC
from broker.request.commit import commit
from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.state.resumed import RESUMED_MAX
from broker.transaction.records import is_for_deleted_topic, resumed_record
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.records.message import decode_record
from remoting.records.message_id import parse_offset_msg_id

__all__ = ["MaintenanceProcessor"]


class MaintenanceProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def delete_expired_log(self, request: Request) -> None:
        """DELETE_EXPIRED_COMMITLOG: begun when it is answered, as in RocketMQ."""
        self._context.retain_now()
        request.reply(ResponseCode.SUCCESS)

    def clean_expired_queues(self, request: Request) -> None:
        """CLEAN_EXPIRED_CONSUMEQUEUE: units of records that the log has let go."""
        self._context.queues.trim(self._context.log.status().begin_position)
        request.reply(ResponseCode.SUCCESS)

    def cold_data(self, request: Request) -> None:
        """GET_COLD_DATA_FLOW_CTR_INFO: no consumer is held back for reading old messages."""
        body = {
            "runtimeTable": {},
            "configTable": {},
            "cgColdReadThreshold": 0,
            "globalColdReadThreshold": 0,
            "globalAcc": 0,
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def pop_rollback(self, request: Request) -> None:
        """POP_ROLLBACK: RocketMQ moves POP's records out of a second store; here there is one."""
        request.reply(ResponseCode.SUCCESS)

    def resume_half(self, request: Request) -> None:
        """RESUME_CHECK_HALF_MESSAGE: a half of TRANS_CHECK_MAX_TIME_TOPIC is checked again."""
        context = self._context
        context.require_leader()
        message_id = request.text("msgId")
        try:
            record = decode_record(context.committed_record(parse_offset_msg_id(message_id)[2]))
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no message of the id {message_id[:64]}: {error}"
            ) from error
        if record.topic != TRANS_CHECK_MAX_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the message is one of {record.topic}, not of {TRANS_CHECK_MAX_TOPIC}",
            )
        if is_for_deleted_topic(context, record.physical_offset, record.property_map()):
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, "the topic of the half was deleted: it has no other"
            )
        pending = resumed_record(context, record)
        assert pending.dedupe_key is not None
        resumed = context.state.resumed
        if (
            record.queue_offset in resumed
            or context.proposer.in_flight_key(pending.dedupe_key) is not None
        ):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "the half was resumed before")
        if len(resumed) >= RESUMED_MAX:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, f"{RESUMED_MAX} halves were resumed")
        commit(context, request, [ResumeCommand(record.queue_offset)], records=[pending])
