"""An orderly member's commits beside its locks: it commits only in queues whose lock it holds.

Place in the data path: the observer of the members of `orderly`; what brokers answered to requests
for locks, and when these were sent, is the model: a lock counts from its request for as long as the
member's own setting says, unless it was refused or given back since.

Invariant: the model never believes in less than the client: an answer that the client does not
count, since it came too late, is counted here.

Source: RocketMQ ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME; `client.consume.queue_consumer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.expectations import Expectations
from chaos.workload.member_observer import MemberObserver
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["LockedCommits"]

_MS: Final = 1_000_000


class LockedCommits(MemberObserver):
    """Holds each commit of a member against the locks that it has got. `held_ms`: how long it may
    believe in one."""

    def __init__(
        self,
        history: HistoryWriter,
        actor: Actor,
        *,
        group: str,
        client: str,
        held_ms: int,
        on_committed: Callable[[MessageQueue, int], None] | None = None,
        on_assigned: Callable[[Sequence[MessageQueue]], None] | None = None,
    ) -> None:
        super().__init__(
            history,
            actor,
            group=group,
            client=client,
            on_committed=on_committed,
            on_assigned=on_assigned,
        )
        self._expectations = Expectations(history, client=f"{client}.locks", client_group=group)
        self._held_ns = held_ms * _MS
        self._since_ns: dict[MessageQueue, int] = {}

    def locks_requested(
        self,
        queues: Sequence[MessageQueue],
        held: Collection[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().locks_requested(queues, held, error, t_invoke=t_invoke, t_complete=t_complete)
        if error is not None:
            return
        for queue in queues:
            if queue in held:
                self._since_ns[queue] = max(t_invoke, self._since_ns.get(queue, t_invoke))
            else:
                self._since_ns.pop(queue, None)

    def locks_released(
        self,
        queues: Sequence[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().locks_released(queues, error, t_invoke=t_invoke, t_complete=t_complete)
        for queue in queues:
            if self._since_ns.get(queue, t_invoke) < t_invoke:
                del self._since_ns[queue]

    def committed(
        self,
        queue: MessageQueue,
        offset: int,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().committed(queue, offset, error, t_invoke=t_invoke, t_complete=t_complete)
        since_ns = self._since_ns.get(queue)
        if since_ns is not None and since_ns > t_invoke:
            return  # it was renewed while the commit was on its way: what was before is gone
        is_held = since_ns is not None and t_invoke - since_ns <= self._held_ns
        self._expectations.hold(
            f"whether the lock is held with which {offset} is committed",
            expected=True,
            answered=is_held,
            queue=queue,
        )
