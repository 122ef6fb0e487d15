"""Discards by hand: an operator gives up halves that nobody will ever decide.

Place in the data path: the processes of `chaos.workload.transactional_sender` leave some halves
undecided; the scenario's `by_hand_share` of these are discarded by request, and the broker's check
gives up the rest. A request that was not answered is repeated, since a discard that comes again is
answered as done.

Source: the run format (discard; T8); LEDGERMQ_DISCARD_HALF.
"""

from __future__ import annotations

from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
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
            _, address = await call_group(
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
