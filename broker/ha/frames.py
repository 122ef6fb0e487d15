"""Frames between a master and its slaves: RocketMQ's HA protocol.

Place in the data path: `broker.ha.slaves` and `broker.ha.master_link` speak it over TCP; the slave
dials. Pure.

| from | bytes | field |
|---|---|---|
| slave | 8 | the position up to which it has the log; the first is the one to begin at |
| master | 8 | position of the bytes that follow |
| | 4 | their number; 0: a heartbeat |
| | n | bytes of the log, within one file |

Source: RocketMQ DefaultHAConnection, DefaultHAClient.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["FRAME_SIZE_MAX", "PUSH", "REPORT", "TRANSFER_SIZE"]

REPORT: Final = struct.Struct(">q")
PUSH: Final = struct.Struct(">qi")
assert (REPORT.size, PUSH.size) == (8, 12)
TRANSFER_SIZE: Final = 32 << 10
"""Most bytes of the log in one frame (haTransferBatchSize)."""
FRAME_SIZE_MAX: Final = 4 << 20
"""Most bytes that a slave takes in one; RocketMQ's has a buffer of so many."""
