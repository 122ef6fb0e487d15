"""The application's and observer's view of a push consumer: listener, statuses, settings, hooks.

Place in the data path: `client.consume.push_consumer` and `client.consume.queue_consumer` share
these values.

Source: RocketMQ MessageListenerConcurrently, DefaultMQPushConsumer's settings and defaults.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from client.connection.heartbeat import ConsumeFrom, MessageModel
from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue
from client.trace.tracer import TraceSettings

__all__ = [
    "ConsumeListener",
    "ConsumeStatus",
    "ConsumerObserver",
    "PushConsumerSettings",
]


_RECONSUME_TIMES: Final = 16
_DELAY_LEVEL_MAX: Final = 18


class ConsumeStatus(enum.Enum):
    """A listener's verdict on the messages of one call, all together.

    Anything else that one returns counts as RECONSUME_LATER, with a line in the log.

    To an ordered consumer RECONSUME_LATER means that the queue waits a moment (RocketMQ's
    SUSPEND_CURRENT_QUEUE_A_MOMENT).
    """

    CONSUME_SUCCESS = "consume_success"
    RECONSUME_LATER = "reconsume_later"


ConsumeListener: TypeAlias = Callable[[Sequence[DeliveredMessage]], Awaitable[ConsumeStatus]]


class ConsumerObserver:
    """Hooks that report each step of a consumer. Times are CLOCK_MONOTONIC, in ns.

    Every hook does nothing by default; hooks are called on the loop and must not block. What one
    raises is logged, and ends nothing. An operation that `crash` interrupts is reported, too, with
    an indefinite error.
    """

    def assigned(self, queues: Sequence[MessageQueue], *, t: int) -> None:
        """Report a rebalance that changed ownership; `queues` are all that are owned from now on.

        Called before the first delivery from a new queue, and after the last delivery from a lost
        one.
        """

    def delivered(
        self,
        messages: Sequence[DeliveredMessage],
        status: ConsumeStatus | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the listener's status; None: it was interrupted, its progress is unknown."""

    def committed(
        self,
        queue: MessageQueue,
        offset: int,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the end of a commit: stored where `error` is None, else as its `definite` says."""

    def offset_fetched(
        self,
        queue: MessageQueue,
        offset: int | None,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report a fetch of the committed offset; None without an error: no offset is stored."""

    def locks_requested(
        self,
        queues: Sequence[MessageQueue],
        held: Collection[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the end of a request for locks of one broker group, or for their renewal.

        `held`: those of `queues` that the broker answered this member holds. With an error nothing
        is known of any.
        """

    def locks_released(
        self,
        queues: Sequence[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        """Report the end of giving locks of one broker group back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerSettings:
    """Settings of a push consumer; times in ms.

    The broker holds a pull for `suspend_ms` while there is nothing new; the pull is abandoned when
    its answer is `answer_slack_ms` later than that (RocketMQ may hold one some seconds longer than
    requested).

    A failed message is sent back to the broker, which delivers it again later, at delay level
    `retry_delay_level` (0: the broker's choice, -1: it goes to the dead letters at once). One that
    the broker does not take back is delivered again from here, after `redelivery_ms_min`, doubled
    with each failure up to `redelivery_ms_max`.

    `ordered`: a queue is consumed under the broker's lock; nothing behind a failed message is
    delivered before it, and it is delivered again every `redelivery_ms_min`.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_from_timestamp_ms: int = 0
    """Unix time from which a new group starts with ConsumeFrom.TIMESTAMP."""
    ordered: bool = False
    consume_batch_max: int = 1
    pull_batch_max: int = 32
    suspend_ms: int = 15_000
    answer_slack_ms: int = 6_000
    rebalance_interval_ms: int = 20_000
    handover_ms: int = 200
    """Wait before taking up a queue that another member may have had, so that it commits its
    offset."""
    commit_interval_ms: int = 5_000
    held_count_max: int = 1_000
    """Messages of one queue that are pulled and not consumed; above it pulls wait."""
    held_bytes_max: int = 100 * 1024 * 1024
    held_span_max: int = 2_000
    """Offsets between the first message that is not consumed and the next pull; above it pulls
    wait."""
    redelivery_ms_min: int = 1_000
    redelivery_ms_max: int = 60_000
    reconsume_times_max: int | None = None
    """A message that failed more often goes to the group's dead letters, `%DLQ%group`; None: 16,
    and with `ordered` never. In broadcasting mode it is dropped with a line in the log."""
    retry_delay_level: int = 0
    lock_interval_ms: int = 20_000
    """Interval at which an ordered consumer renews its locks."""
    lock_held_ms: int = 30_000
    """Time after which a lock that was not renewed has expired: half of what brokers grant."""
    offset_file: Path | None = None
    """File in which a broadcasting member stores its offsets; None: nowhere, it starts anew with
    `consume_from` at every start."""
    consume_timeout_ms: int | None = 900_000
    """Time limit of one listener call; None: none. Then the call is cancelled, and the messages are
    delivered again; a blocking listener of `client.blocking.sync` can't be cancelled and runs on
    beside that. Its time begins when a thread does, however long it waits for one."""
    stop_timeout_ms: int = 10_000
    """Time limit for the listener to end when its queue is released."""
    timeout_ms: int = 3_000
    trace: TraceSettings | None = None
    """Where set, consumed messages are recorded in RocketMQ's trace topic."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)

    def __post_init__(self) -> None:
        for name in (
            "consume_batch_max",
            "pull_batch_max",
            "suspend_ms",
            "answer_slack_ms",
            "rebalance_interval_ms",
            "commit_interval_ms",
            "held_count_max",
            "held_bytes_max",
            "held_span_max",
            "consume_timeout_ms",
            "redelivery_ms_min",
            "stop_timeout_ms",
            "timeout_ms",
            "lock_interval_ms",
            "lock_held_ms",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, not {value}")
        if self.handover_ms < 0:
            raise ValueError(f"handover_ms must not be below 0: {self.handover_ms}")
        if self.reconsume_times_max is not None and self.reconsume_times_max < 0:
            raise ValueError(f"reconsume_times_max must not be below 0: {self.reconsume_times_max}")
        if not -1 <= self.retry_delay_level <= _DELAY_LEVEL_MAX:
            raise ValueError(f"retry_delay_level {self.retry_delay_level} is outside -1..18")
        if self.redelivery_ms_max < self.redelivery_ms_min:
            raise ValueError(
                f"redelivery_ms_max {self.redelivery_ms_max} is below "
                f"redelivery_ms_min {self.redelivery_ms_min}"
            )

    @property
    def takes_locks(self) -> bool:
        return self.ordered and self.message_model is MessageModel.CLUSTERING

    @property
    def reconsume_limit(self) -> int:
        """Return the limit of retries that is reported to brokers."""
        return _RECONSUME_TIMES if self.reconsume_times_max is None else self.reconsume_times_max

    def is_last_attempt(self, failures: int) -> bool:
        """Return whether the next failure is final for a message that failed `failures` times."""
        if self.ordered and self.reconsume_times_max is None:
            return False
        return failures >= self.reconsume_limit

    def redelivery_ms(self, failures: int) -> int:
        """Return the delay before redelivery of a message that failed `failures` times before."""
        if self.ordered:
            return self.redelivery_ms_min
        return min(self.redelivery_ms_max, self.redelivery_ms_min << min(failures, 20))
