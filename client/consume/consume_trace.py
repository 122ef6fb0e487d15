"""Trace records of a push consumer's deliveries to its listener.

Place in the data path: `client.consume.queue_consumer` calls `begin` before each delivery and `end`
after it; the records go to a `client.trace.tracer`.

Source: RocketMQ ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage, PropertyName
from client.trace.codec import ConsumeReturn, TraceSubAfter, TraceSubBefore
from client.trace.tracer import Tracer

__all__ = ["ConsumeTrace", "Traced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One delivery in progress; `traced_ids` are its messages that brokers want traced."""

    request_id: str
    began_ns: int
    traced_ids: frozenset[str]


class ConsumeTrace:
    """Traces the deliveries of `group`; `next_id` makes the id that joins a delivery's records."""

    def __init__(self, tracer: Tracer, group: str, next_id: Callable[[int], str]) -> None:
        self._tracer = tracer
        self._group = group
        self._next_id = next_id

    def begin(self, messages: Sequence[DeliveredMessage]) -> Traced:
        now_ms = time.time_ns() // 1_000_000
        request_id = self._next_id(now_ms)
        traced = [
            message
            for message in messages
            if message.properties.get(PropertyName.TRACE_ON) != "false"
        ]
        self._tracer.add(
            TraceSubBefore(
                time_ms=now_ms,
                region=message.properties.get(PropertyName.MSG_REGION, ""),
                group=self._group,
                request_id=request_id,
                msg_id=message.uniq_key,
                retry_times=message.reconsume_times,
                keys=message.keys,
            )
            for message in traced
        )
        return Traced(
            request_id=request_id,
            began_ns=time.monotonic_ns(),
            traced_ids=frozenset(message.uniq_key for message in traced),
        )

    def end(
        self,
        traced: Traced,
        messages: Sequence[DeliveredMessage],
        status: ConsumeStatus | None,
        *,
        raised: bool,
    ) -> None:
        """Record the `status` as the listener returned it, or that it `raised`; None: it returned
        nothing, or was interrupted."""
        if status is ConsumeStatus.CONSUME_SUCCESS:
            code = ConsumeReturn.SUCCESS
        elif raised:
            code = ConsumeReturn.EXCEPTION
        else:
            code = ConsumeReturn.RETURNED_NULL if status is None else ConsumeReturn.FAILED
        cost_ms = (time.monotonic_ns() - traced.began_ns) // 1_000_000 // max(1, len(messages))
        now_ms = time.time_ns() // 1_000_000
        self._tracer.add(
            TraceSubAfter(
                time_ms=now_ms,
                request_id=traced.request_id,
                msg_id=message.uniq_key,
                cost_ms=cost_ms,
                is_success=code is ConsumeReturn.SUCCESS,
                keys=message.keys,
                code=code,
            )
            for message in messages
            if message.uniq_key in traced.traced_ids
        )
