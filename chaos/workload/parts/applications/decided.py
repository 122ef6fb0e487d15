"""Decisions on transactions that have ended: what a producer is told of each.

Place in the data path: `broker.transaction.end_transaction`, and `client.connection.answers`, which
tells a decision that lost from one whose outcome nobody knows.

Invariants: each half is ended once, by a decision or by an operator, and nobody is asked for it in
between. The decision that won is answered as done, however often it is sent; every other is a
definite failure.

Source: docs/TRANSACTIONS.md; docs/CLIENT.md (ContraryDecisionError).
"""

from __future__ import annotations

from typing import Final

from chaos.workload.parts.applications.bench import SENT_ONCE, Bench
from client.errors import BrokerRefusedError
from client.message import DeliveredMessage, Message
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    half_message,
)

__all__ = ["EndedTransactions"]

DISCARD: Final = "discard"
WINNERS: Final = (DISCARD, Decision.COMMIT, Decision.ROLLBACK)
DONE: Final = ("ok", None)
LOST: Final = ("fail", "ContraryDecisionError")
_UNSERVED: Final = 3


class _Listener:
    """Knows nothing of any transaction."""

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Leave it undecided."""
        return Decision.UNKNOWN


class EndedTransactions:
    """A half for each way to end, and the decisions behind it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """End each half, then decide it both ways. Raises ClientError."""
        await self._bench.make_topic(1)
        async with self._bench.transactions(_Listener(), **SENT_ONCE) as producer:
            for winner in WINNERS:
                if not await self._end_and_decide(producer, winner):
                    return

    async def _end_and_decide(self, producer: TransactionProducer, winner: Decision | str) -> bool:
        """Return whether the brokers can end a half in this way. Raises ClientError."""
        bench = self._bench
        sent = await producer.send_half(bench.message())
        half = half_message(sent)
        if isinstance(winner, Decision):
            await producer.end(half, winner)
        else:
            try:
                await bench.admin.discard_half(sent.offset_msg_id, half.broker_name)
            except BrokerRefusedError as error:
                if error.code == _UNSERVED:
                    return False
                raise
        for decision in (Decision.COMMIT, Decision.ROLLBACK):
            result = await producer.end(half, decision)
            name = winner.value if isinstance(winner, Decision) else winner
            bench.hold(
                f"{decision.value} of a half behind its {name}",
                expected=DONE if decision is winner else LOST,
                answered=(
                    result.outcome.value,
                    None if result.error is None else type(result.error).__name__,
                ),
            )
        return True
