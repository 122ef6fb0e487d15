"""The contents of a message as one number: the column `digest` of the run format.

Place in the data path: computed for each message before it is sent, and for each that was read, as
the client shows it; the verifier compares them with the messages in the replicas' logs. Pure.

Invariants: what a broker adds or changes on the way (times, offsets, retries, UNIQ_KEY) does not
count; body, flag, TAGS, KEYS and the properties whose names begin with `u_` do.

Source: the run format, `digest`, with its test vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xxhash import xxh3_64

from remoting.records.property_names import PropertyName

__all__ = ["USER_PREFIX", "contents_digest"]

USER_PREFIX: Final = "u_"
_COUNTED: Final = frozenset({PropertyName.TAGS, PropertyName.KEYS})
_SIGN_BIT: Final = 1 << 63


def contents_digest(body: bytes, flag: int, properties: Mapping[str, str]) -> int:
    """Return XXH3-64 as a signed integer.

    `flag` is a 32-bit number; `properties` may hold others, which are ignored.
    """
    digest = xxh3_64(body)
    digest.update(b"\0" + (flag & 0xFFFF_FFFF).to_bytes(4, "big"))
    counted = [
        (name.encode(), value.encode())
        for name, value in properties.items()
        if name in _COUNTED or name.startswith(USER_PREFIX)
    ]
    for name, value in sorted(counted):
        digest.update(name + b"\x01" + value + b"\x02")
    unsigned = digest.intdigest()
    return unsigned - 2 * _SIGN_BIT if unsigned >= _SIGN_BIT else unsigned
