"""Discards by hand: an operator gives up halves that nobody will ever decide.

Place in the data path: the processes of `chaos.workload.transactional_sender` leave some halves
undecided; the scenario's `by_hand_share` of these are discarded by request, and the broker's check
gives up the rest. A request that was not answered is repeated, since a discard that comes again is
answered as done. Behind each, the list of what was discarded has its copy.

Source: the run format (discard, ask; T8, M12); LEDGERMQ_DISCARD_HALF, LEDGERMQ_LIST_HALVES.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.expectations import CALM
from client.administer.halves import page_of
from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.errors import ClientError
from client.message import MessageQueue
from client.produce.transaction_producer import HalfMessage
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["discard_by_hand"]

NO_HOST: Final = "0" * 16  # the broker goes by the position alone
PAGES_MAX: Final = 200
PAGE_COUNT: Final = 64
_POSITION_DIGITS: Final = 16  # of an id, behind the host


async def discard_by_hand(
    context: WorkContext,
    instance: ClientInstance,
    actor: Actor,
    *,
    half: HalfMessage,
    tx: str,
    queue: MessageQueue,
) -> None:
    """Have the half discarded, as one operation."""
    fields = {"msgId": f"{NO_HOST}{half.commit_log_offset:016X}"}
    with actor.operation(
        "discard",
        broker_group=half.broker_name,
        topic=queue.topic,
        queue=queue.queue_id,
        offset=half.offset,
        tx=tx,
    ) as operation:
        try:
            answer, address = await call_group(
                instance,
                half.broker_name,
                lambda: RemotingCommand(
                    code=RequestCode.LEDGERMQ_DISCARD_HALF, ext_fields=dict(fields)
                ),
                topic=queue.topic,
                timeout_ms=context.scenario.workload.send_timeout_ms,
                policy=RetryPolicy(),
            )
        except ClientError as error:
            operation.failed(error)
            return
        operation.complete("ok", node=context.node(address))
    copy = answer.ext_fields.get("msgId")
    if copy is not None:
        await _hold_listed(context, instance, actor, half.broker_name, topic=queue.topic, copy=copy)


async def _hold_listed(
    context: WorkContext,
    instance: ClientInstance,
    actor: Actor,
    broker_name: str,
    *,
    topic: str,
    copy: str,
) -> None:
    """List all that was discarded, page by page from the beginning: the copy is there. Retention
    may have taken others, and takes this one no sooner than a list ends without a fault."""
    with actor.operation(
        "ask",
        broker_group=broker_name,
        topic=topic,
        key=f"whether {copy} is among the discarded",
        ref="listed",
        decision=CALM,
    ) as operation:
        offset = 0
        for _ in range(PAGES_MAX):
            fields = {"state": "discarded", "offset": str(offset), "countMax": str(PAGE_COUNT)}
            try:
                answer, address = await call_group(
                    instance,
                    broker_name,
                    partial(
                        RemotingCommand, code=RequestCode.LEDGERMQ_LIST_HALVES, ext_fields=fields
                    ),
                    topic=topic,
                    timeout_ms=context.scenario.workload.send_timeout_ms,
                    policy=RetryPolicy(),
                )
                page = page_of(answer)
            except ClientError as error:
                operation.failed(error)
                return
            places = [half.msg_id[-_POSITION_DIGITS:] for half in page.halves]
            is_listed = copy[-_POSITION_DIGITS:] in places
            if is_listed or page.is_end:
                shown = "listed" if is_listed else "not listed"
                operation.complete("ok", status=shown, node=context.node(address))
                return
            offset = page.next_offset
        operation.complete("info", error=f"more than {PAGES_MAX} pages")
