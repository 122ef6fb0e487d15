"""The tags code of a message: what a ConsumeQueue unit has in place of its tag.

Place in the data path: readers of stores derive units with it, and the manifest's tags of a group
are compared with what stands in logs.

Source: RocketMQ MessageExtBrokerInner.tagsString2tagsCode. Pure.
"""

from __future__ import annotations

import struct

__all__ = ["tag_hash"]


def tag_hash(tags: str) -> int:
    """Compute Java's String.hashCode over UTF-16 units, as a signed number."""
    code = 0
    for (unit,) in struct.iter_unpack(">H", tags.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
