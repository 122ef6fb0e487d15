"""Which engine replicates this broker's log.

Place in the data path: the one spot where the broker learns that its ReplicatedLog is Raft. Other
engines (`pysyncobj`, master-slave) join here.
"""

from __future__ import annotations

__all__ = ["open_log"]
