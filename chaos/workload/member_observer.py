"""The records of a consumer group's member: assignments, commits, fetches of offsets, locks,
deliveries.

Place in the data path: hooks of `client.consume.push_consumer`, which reports each step; rows go to
the history.

Invariants: a member's assignments are recorded by its own process, commits and fetches by a process
per queue, deliveries that may overlap by another process per queue, each retired after an unknown
outcome; each request for a lock is a process of its own, since renewals overlap other requests.

Source: the run format (assign, commit_offset, fetch_offset, lock, unlock, deliver).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from chaos.recording.history import HistoryWriter, Outcome
from chaos.workload.actor import Actor, error_text, outcome_of
from chaos.workload.context import queue_row
from client.consume.listener import ConsumerObserver
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["MemberObserver", "QueueActors"]


class MemberObserver(ConsumerObserver):
    """Records what a member does besides delivering.

    `on_committed` is called with each offset whose commit was acknowledged, `on_assigned` with all
    queues owned whenever these change.
    """

    def __init__(
        self,
        history: HistoryWriter,
        actor: Actor,
        *,
        group: str,
        client: str,
        on_committed: Callable[[MessageQueue, int], None] | None = None,
        on_assigned: Callable[[Sequence[MessageQueue]], None] | None = None,
    ) -> None:
        self._history = history
        self._actor = actor
        self._group = group
        self._client = client
        self._on_committed = on_committed
        self._on_assigned = on_assigned
        self._retired: dict[MessageQueue, int] = {}
        self._lock_numbers = itertools.count()

    def assigned(self, queues: Sequence[MessageQueue], *, t: int) -> None:
        if self._on_assigned is not None:
            self._on_assigned(queues)
        with self._actor.operation("assign") as operation:
            operation.complete("ok", assigned=[queue_row(queue) for queue in queues])

    def committed(
        self,
        queue: MessageQueue,
        offset: int,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        if error is None and self._on_committed is not None:
            self._on_committed(queue, offset)
        self._record(
            "commit_offset", queue, offset, error, t_invoke=t_invoke, t_complete=t_complete
        )

    def offset_fetched(
        self,
        queue: MessageQueue,
        offset: int | None,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        self._record("fetch_offset", queue, offset, error, t_invoke=t_invoke, t_complete=t_complete)

    def locks_requested(
        self,
        queues: Sequence[MessageQueue],
        held: Collection[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        for queue in queues:
            answered: Outcome = "ok" if queue in held else "fail"
            outcome = answered if error is None else outcome_of(error)
            self._record_lock(
                "lock", queue, outcome, error, t_invoke=t_invoke, t_complete=t_complete
            )

    def locks_released(
        self,
        queues: Sequence[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        for queue in queues:
            outcome: Outcome = "ok" if error is None else outcome_of(error)
            self._record_lock(
                "unlock", queue, outcome, error, t_invoke=t_invoke, t_complete=t_complete
            )

    def _record_lock(
        self,
        f: str,
        queue: MessageQueue,
        outcome: Outcome,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Record one queue of a request; one that the broker refused has no error."""
        self._history.record(
            f,
            outcome,
            t_invoke=t_invoke,
            t_complete=max(t_complete, t_invoke),
            process=f"{self._client}.lock-{next(self._lock_numbers)}",
            client=self._client,
            client_group=self._group,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            status="REFUSED" if outcome == "fail" and error is None else None,
            error=None if error is None else error_text(error),
        )

    def _record(
        self,
        f: str,
        queue: MessageQueue,
        offset: int | None,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Record an operation by a process per queue, which an unknown outcome retires."""
        retired = self._retired.get(queue, 0)
        outcome: Outcome = "ok" if error is None else outcome_of(error)
        self._history.record(
            f,
            outcome,
            t_invoke=t_invoke,
            t_complete=max(t_complete, t_invoke),
            process=f"{self._client}.{_place(queue)}" + (f"~{retired}" if retired else ""),
            client=self._client,
            client_group=self._group,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
            error=None if error is None else error_text(error),
        )
        if outcome == "info":
            self._retired[queue] = retired + 1


class QueueActors:
    """The processes of one client, one per queue: its listener has several queues at once."""

    def __init__(self, history: HistoryWriter, *, client: str, client_group: str) -> None:
        self._history = history
        self._client = client
        self._client_group = client_group
        self._actors: dict[MessageQueue, Actor] = {}

    def of(self, queue: MessageQueue) -> Actor:
        if queue not in self._actors:
            self._actors[queue] = Actor(
                self._history,
                root=f"{self._client}.{_place(queue)}.listener",
                client=self._client,
                client_group=self._client_group,
            )
        return self._actors[queue]


def _place(queue: MessageQueue) -> str:
    return f"{queue.topic}.{queue.broker_name}.{queue.queue_id}"
