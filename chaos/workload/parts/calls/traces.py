"""What the clients of the part `calls` have traced, against what they did.

Place in the data path: `client.trace` sends the records into the trace topic; read at the run's
end, when all clients have stopped.

Invariants: a trace says what its client was answered, and when it sent; a request id is that of one
delivery; a client that stopped in good order has sent the traces of all that it did, which is
judged where there was no fault from then on, since a trace is lost with a broker that does not take
it.

Source: RocketMQ AsyncTraceDispatcher.shutdown, SendMessageTraceHookImpl,
ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.parts.calls.sender import GROUP, Sent
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.trace_records import Trace, Traced, traces_of
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError

__all__ = ["TracesDrill"]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
ROUNDED_MS: Final = 10  # a cost is of another clock than times are
_COMPARED: Final = (
    *("group", "topic", "tags", "keys", "body_size", "type"),
    *("offset_msg_id", "store_host", "success"),
)


class TracesDrill:
    """Reads the trace topic once. `sent`: what was acknowledged to the traced producers."""

    def __init__(self, kit: PartKit, slot: Slot, sent: Mapping[str, Sent], *, topic: str) -> None:
        self._context = kit.context
        self._slot = slot
        self._topic = topic
        self._sent = {str(each.message.uniq_key): each for each in sent.values()}
        self._expectations = Expectations(
            kit.context.history, client=slot.next_client(), client_group=GROUP
        )

    async def hold(self, ended: Sequence[Traced], given: Sequence[Traced]) -> None:
        """Hold what was traced against what was sent (`ended`: by clients that had stopped in good
        order) and `given`."""
        try:
            traces = await self._read()
        except ClientError:
            return  # nobody answers any more: what can't be read is not judged
        published: set[str] = set()
        begun: set[str] = set()
        taken: dict[str, set[bool]] = {}
        deliveries: dict[str, set[str]] = {}  # the times at which those of a request id began
        for trace in traces:
            if trace["kind"] == "Pub":
                published.update(self._hold_published(trace))
            elif trace["kind"] == "SubBefore":
                begun.add(trace.get("msg_id", ""))
                deliveries.setdefault(trace.get("request", ""), set()).add(trace.get("time", ""))
            elif trace["kind"] == "SubAfter":
                outcome = trace.get("code"), trace.get("success")
                taken.setdefault(trace.get("msg_id", ""), set()).add(outcome[0] == "0")
                self._expectations.hold(
                    "return code in a trace of a delivery, and success",
                    expected=("0", "true") if outcome[0] == "0" else ("4", "false"),
                    answered=outcome,
                )
        shared = {request for request, times in deliveries.items() if len(times) > 1}
        self._expectations.hold(
            "request ids in traces that several deliveries share",
            expected=[],
            answered=sorted(shared),
        )
        # Traces of a client may be lost with a broker; not those of all its sends.
        enough = len(self._sent) >= 10
        self._expectations.hold(
            "whether sends of a traced client were traced",
            expected=True if enough else None,
            answered=bool(published & self._sent.keys()),
        )
        for each in ended:
            self._hold_there("sent by", each, each.uniq_key in published)
        for each in given:
            is_there = each.uniq_key in begun and each.is_taken in taken.get(each.uniq_key, ())
            self._hold_there("given to", each, is_there)

    def _hold_there(self, how: str, traced: Traced, is_there: bool) -> None:
        self._expectations.hold(
            f"trace of a message {how} a client that had stopped: {traced.uniq_key}",
            expected="there",
            answered="there" if is_there else "missing",
            topic=self._topic,
            calm_since=traced.began_ns,
        )

    def _hold_published(self, trace: Trace) -> Sequence[str]:
        keys = trace["msg_id"].split(",")
        first = self._sent.get(keys[0])
        if first is None:
            return ()  # its answer was lost on the way to the application
        message = first.message
        self._expectations.hold(
            "trace of a send",
            expected={
                "group": GROUP,
                "topic": self._topic,
                "tags": message.tags or "null",
                "keys": " ".join(message.keys) or "null",
                "body_size": str(len(message.body)),
                "type": "0",
                "offset_msg_id": first.result.offset_msg_id,
                "store_host": first.result.address,
                "success": "true",
            },
            answered={name: trace.get(name) for name in _COMPARED},
        )
        began, cost = trace.get("time", ""), trace.get("cost", "")
        is_within = (
            began.isdecimal()
            and cost.isdecimal()
            and first.began_ms - ROUNDED_MS <= int(began)
            and int(began) + int(cost) <= first.acked_ms
        )
        self._expectations.hold(
            "time and cost in a trace of a send",
            expected="within the send",
            answered="within the send"
            if is_within
            else f"{began} and {cost}: the send took from {first.began_ms} to {first.acked_ms}",
        )
        return keys

    async def _read(self) -> list[Trace]:
        """Read the trace topic to its end. Raises ClientError."""
        traces: list[Trace] = []
        settings = PullConsumerSettings(register=False, instance=self._slot.instance_settings())
        async with PullConsumer(
            GROUP, self._context.name_servers, self._slot.dial, settings=settings
        ) as consumer:
            for queue in await consumer.queues(TRACE_TOPIC):
                position, end = 0, await consumer.max_offset(queue)
                while position < end:
                    result = await consumer.pull(queue, position)
                    for message in result.messages:
                        traces += traces_of(message.body)
                    if result.next_begin_offset <= position:
                        break
                    position = result.next_begin_offset
        return traces
