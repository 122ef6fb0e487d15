"""The toxics that the server knows, one per module, by the name that the API gives them.

`base` says what a toxic is: a stage in one direction of one connection. A stage owns no socket.

May import: nothing of ledgermq.
"""

from types import MappingProxyType

from toxiproxy.toxics.bandwidth import BandwidthStage
from toxiproxy.toxics.base import Attributes, Sink, Stage, Timers
from toxiproxy.toxics.latency import LatencyStage
from toxiproxy.toxics.limit_data import LimitDataStage
from toxiproxy.toxics.noop import NoopStage
from toxiproxy.toxics.reset_peer import ResetPeerStage
from toxiproxy.toxics.slicer import SlicerStage
from toxiproxy.toxics.slow_close import SlowCloseStage
from toxiproxy.toxics.timeout import TimeoutStage

__all__ = ["TOXIC_TYPES", "Attributes", "Sink", "Stage", "Timers"]

TOXIC_TYPES = MappingProxyType(
    {
        stage.type_name: stage
        for stage in (
            BandwidthStage,
            LatencyStage,
            LimitDataStage,
            NoopStage,
            ResetPeerStage,
            SlicerStage,
            SlowCloseStage,
            TimeoutStage,
        )
    }
)
