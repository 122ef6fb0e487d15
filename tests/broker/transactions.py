"""Transactions as a client asks for them: a half, and its end."""

from __future__ import annotations

from broker.send.send import SendProcessor
from broker.transaction.end_transaction import EndTransactionProcessor
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import parse_offset_msg_id
from tests.broker.rig import Rig, send_fields


async def half(
    rig: Rig, key: str = "K1", topic: str = "T", queue: int = 2, **properties: str
) -> dict[str, str]:
    """Send a half; the END_TRANSACTION fields for it, without the decision."""
    send = rig.make(SendProcessor)
    own = properties | {"TRAN_MSG": "true", "PGROUP": "PG"}
    fields = send_fields(topic=topic, queue=queue, key=key, **own)
    answer = await rig.ask(send.handle, RequestCode.SEND_MESSAGE_V2, fields, b"pay")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueId"] == str(queue)
    _, _, position = parse_offset_msg_id(answer.ext_fields["msgId"])
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": str(position),
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }


async def end(rig: Rig, fields: dict[str, str], decision: str, **changed: str):
    processor = rig.make(EndTransactionProcessor, rig.tasks)
    return await rig.ask(
        processor.handle,
        RequestCode.END_TRANSACTION,
        fields | {"commitOrRollback": decision} | changed,
    )
