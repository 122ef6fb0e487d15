"""Writes frames to a connection that may be closed at any moment.

Place in the data path: `broker.ha.slaves` and `broker.ha.master_link` send by it.

Invariant: a connection that this side has found closed raises ConnectionError, on every event loop:
asyncio's transport discards what is written then, and uvloop's raises RuntimeError.
"""

from __future__ import annotations

import asyncio

__all__ = ["send"]


def send(writer: asyncio.StreamWriter, *parts: bytes) -> None:
    """Write the parts in order. Raises ConnectionError where the connection is closed."""
    if writer.is_closing():
        raise ConnectionResetError("the connection is closed")
    for part in parts:
        writer.write(part)
