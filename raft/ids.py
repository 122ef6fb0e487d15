"""The basic types of Raft, and the range of each on the wire.

Place in the data path: imported by every module of the package; it imports none. The ranges are
checked where a peer's bytes are decoded (`raft.peers.wire_heads`), not where a value is made.

Source: Raft, figure 2.
"""

from __future__ import annotations

from typing import Annotated, Final, NewType

from msgspec import Meta

__all__ = ["NODE_NAME_SIZE_MAX", "NUMBER_MAX", "Crc", "Index", "NodeId", "Number", "Term"]

NODE_NAME_SIZE_MAX: Final = 255
"""Bytes of a name, and of an address, in UTF-8."""

NUMBER_MAX: Final = 2**63 - 1

NodeId = NewType("NodeId", Annotated[str, Meta(min_length=1, max_length=NODE_NAME_SIZE_MAX)])
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Crc = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Term = Number
Index = Number
