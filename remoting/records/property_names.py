"""Names of the message properties that RocketMQ's clients and brokers set for one another.

Place in the data path: whoever reads or writes a property of the system names it by these; the
block that holds them is `remoting.records.properties`.

Source: RocketMQ MessageConst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DELAYING", "PropertyName", "delaying_property"]


class PropertyName:
    """One name each; what is not here is the application's own."""

    # Of the message itself.
    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    UNIQ_KEY: Final = "UNIQ_KEY"
    WAIT: Final = "WAIT"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    # Of its way: where it was sent to, and where and when it was read.
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    CLUSTER: Final = "CLUSTER"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    # Of transactions.
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    # Of delays.
    DELAY: Final = "DELAY"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    # Of retries, dead letters and POP.
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
    POP_CK: Final = "POP_CK"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    # Of requests and replies.
    MSG_TYPE: Final = "MSG_TYPE"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    TTL: Final = "TTL"


DELAYING: Final = (
    PropertyName.DELAY,
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.TIMER_DELIVER_MS,
)


def delaying_property(properties: Mapping[str, str]) -> str | None:
    """Return the name of the property that delays the message; None where none does."""
    return next((name for name in DELAYING if properties.get(name, "0") != "0"), None)
