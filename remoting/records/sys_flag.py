"""Bits of a message's system flag.

Place in the data path: field `f` of a send, field 8 of a stored record.
Source: RocketMQ MessageSysFlag, CompressionType.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BORN_HOST_IPV6",
    "COMPRESSED",
    "COMPRESSION_LZ4",
    "COMPRESSION_MASK",
    "COMPRESSION_ZLIB",
    "COMPRESSION_ZSTD",
    "INNER_BATCH",
    "STORE_HOST_IPV6",
    "TRANSACTION_COMMIT",
    "TRANSACTION_MASK",
    "TRANSACTION_NONE",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "with_transaction_type",
]

COMPRESSED: Final = 0x1
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
INNER_BATCH: Final = 0x80
# No bits at all mean zlib too: clients from before the bits send none.
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_MASK: Final = 0x700


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """Return `sys_flag` with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction
