"""The toxics that the server knows, one per module, by the name that the API gives them.

`base` says what a toxic is: a stage in one direction of one connection. A stage owns no socket.

May import: `toxiproxy.frames`.
"""

from types import MappingProxyType

from toxiproxy.toxics.bandwidth import BandwidthStage
from toxiproxy.toxics.base import Attributes, AttributeValue, Sink, Stage, Timers
from toxiproxy.toxics.frame_damage import FrameDamageStage
from toxiproxy.toxics.frame_delay import FrameDelayStage
from toxiproxy.toxics.frame_drop import FrameDropStage
from toxiproxy.toxics.frame_duplicate import FrameDuplicateStage
from toxiproxy.toxics.frame_reorder import FrameReorderStage
from toxiproxy.toxics.frame_stage import FrameStage
from toxiproxy.toxics.half_open import HalfOpenStage
from toxiproxy.toxics.latency import LatencyStage
from toxiproxy.toxics.limit_data import LimitDataStage
from toxiproxy.toxics.noop import NoopStage
from toxiproxy.toxics.packet_loss import PacketLossStage
from toxiproxy.toxics.reset_peer import ResetPeerStage
from toxiproxy.toxics.slicer import SlicerStage
from toxiproxy.toxics.slow_close import SlowCloseStage
from toxiproxy.toxics.timeout import TimeoutStage

__all__ = [
    "TOXIC_TYPES",
    "AttributeValue",
    "Attributes",
    "FrameStage",
    "Sink",
    "Stage",
    "Timers",
]

TOXIC_TYPES = MappingProxyType(
    {
        stage.type_name: stage
        for stage in (
            BandwidthStage,
            FrameDamageStage,
            FrameDelayStage,
            FrameDropStage,
            FrameDuplicateStage,
            FrameReorderStage,
            HalfOpenStage,
            LatencyStage,
            LimitDataStage,
            NoopStage,
            PacketLossStage,
            ResetPeerStage,
            SlicerStage,
            SlowCloseStage,
            TimeoutStage,
        )
    }
)
