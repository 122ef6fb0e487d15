"""The toxics that the server knows, one per module, by the name that the API gives them."""

from types import MappingProxyType

from chaos.toxiproxy.toxics.bandwidth import BandwidthStage
from chaos.toxiproxy.toxics.base import Attributes, Sink, Stage, Timers
from chaos.toxiproxy.toxics.latency import LatencyStage
from chaos.toxiproxy.toxics.limit_data import LimitDataStage
from chaos.toxiproxy.toxics.noop import NoopStage
from chaos.toxiproxy.toxics.reset_peer import ResetPeerStage
from chaos.toxiproxy.toxics.slicer import SlicerStage
from chaos.toxiproxy.toxics.slow_close import SlowCloseStage
from chaos.toxiproxy.toxics.timeout import TimeoutStage

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
