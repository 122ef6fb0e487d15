"""Queries for delayed messages that were delivered: each is found by its UNIQ_KEY where it came.

Place in the data path: QUERY_MESSAGE at a group's leader through the connections of a sender of the
part `timers`; the answer is held against what the part's reader was given.

Source: RocketMQ QueryMessageProcessor, QueryMsgByUniqueKeySubCommand; the run format (ask).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.message import DeliveredMessage
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = ["DELIVERED_MAX", "find_some"]

DELIVERED_MAX: Final = 100  # of which one is queried
FOUND_SHARE: Final = 0.3
TIMEOUT_MS: Final = 2_000
COUNT_MAX: Final = 32
END_MS: Final = (1 << 62) - 1
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS.value, ResponseCode.QUERY_NOT_FOUND.value})


async def find_some(
    instance: ClientInstance,
    expectations: Expectations,
    delivered: Sequence[DeliveredMessage],
    rng: random.Random,
) -> None:
    """Now and then, query one that was delivered by its key, and hold the answer against where
    it came."""
    if not delivered or rng.random() >= FOUND_SHARE:
        return
    message = rng.choice(delivered)
    queue = message.queue
    fields = {
        "topic": queue.topic,
        "key": str(message.uniq_key),
        "maxNum": str(COUNT_MAX),
        "beginTimestamp": "0",
        "endTimestamp": str(END_MS),
        "bname": queue.broker_name,
        "_UNIQUE_KEY_QUERY": "true",
    }
    try:
        answer, _ = await request_leader(
            instance,
            queue.broker_name,
            lambda: RemotingCommand(code=RequestCode.QUERY_MESSAGE, ext_fields=dict(fields)),
            timeout_ms=TIMEOUT_MS,
            accept=_ANSWERS,
        )
    except ClientError:
        return  # without an answer nothing is compared
    expectations.hold(
        f"where {message.uniq_key} is, which was delivered",
        expected=f"{queue.queue_id} at {message.queue_offset}",
        answered=_places(answer),
        queue=queue,
    )


def _places(answer: RemotingCommand) -> str:
    try:
        records = list(decode_records(answer.body)) if answer.body else []
    except RecordError:
        return "what can't be read"
    return ", ".join(f"{each.queue_id} at {each.queue_offset}" for each in records) or "nowhere"
