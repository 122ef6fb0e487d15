"""How much of a store's disk is used.

Place in the data path: `broker.process.housekeeping` queries it, and `broker.request.room` says
what follows from it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from broker.request.room import DiskUse

__all__ = ["disk_use"]


def disk_use(store: Path) -> DiskUse:
    """Return the usage of the disk under `store`. Raises OSError."""
    usage = shutil.disk_usage(store)
    return DiskUse(used=usage.used, free=usage.free)
