"""The settings of a producer; pure.

Place in the data path: an application gives them to `client.produce.producer`.

Source: RocketMQ DefaultMQProducer's settings and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.connection.send_codec import Compression
from client.trace.tracer import TraceSettings

__all__ = ["ProducerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer. `compression` None: no body is compressed.

    With `latency_faults`, broker groups that were slow or failed are avoided for a while where
    there are others. With `trace`, sends are recorded in RocketMQ's trace topic.
    """

    timeout_ms: int = 3_000
    in_flight_max: int = 1_024
    compression: Compression | None = field(default_factory=Compression)
    latency_faults: bool = False
    trace: TraceSettings | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)

    def __post_init__(self) -> None:
        if self.timeout_ms < 1:
            raise ValueError(f"timeout_ms must be positive, not {self.timeout_ms}")
        if self.in_flight_max < 1:
            raise ValueError(f"in_flight_max must be positive, not {self.in_flight_max}")
