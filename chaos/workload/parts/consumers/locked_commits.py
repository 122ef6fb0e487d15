"""An orderly member's commits beside its locks: it commits only in queues whose lock it holds, and
gives back only what it has got.

Place in the data path: the observer of the members of `orderly`; `lock_model` knows what brokers
answered to its requests.

Source: RocketMQ ProcessQueue.isLockExpired, RebalanceImpl.unlockAll; `client.consume`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.expectations import Expectations
from chaos.workload.member_observer import MemberObserver
from chaos.workload.parts.common.lock_model import MemberLocks
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["LockedCommits"]


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
        self._locks = MemberLocks(held_ms=held_ms)

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
        if error is None:
            self._locks.answered(queues, held, t_invoke=t_invoke)
        else:
            self._locks.unanswered(queues, t_invoke=t_invoke)

    def locks_released(
        self,
        queues: Sequence[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        super().locks_released(queues, error, t_invoke=t_invoke, t_complete=t_complete)
        strange = self._locks.released(queues, t_invoke=t_invoke)
        self._expectations.hold(
            "queues whose lock is given back, and was not got since it was given back before",
            expected="none",
            answered=" ".join(map(str, strange)) or "none",
        )

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
        since_ns = self._locks.since_ns(queue)
        if since_ns is not None and since_ns > t_invoke:
            return  # it was renewed while the commit was on its way: what was before is gone
        self._expectations.hold(
            f"whether the lock is held with which {offset} is committed",
            expected=True,
            answered=self._locks.is_held(queue, t_invoke),
            queue=queue,
        )
