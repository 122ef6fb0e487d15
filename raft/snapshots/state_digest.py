"""A digest of a state while it is written: equal on nodes that have applied the same entries.

Place in the data path: whoever writes a snapshot passes its chunks through, and reports the
digest to the trace. Pure.

Source: docs/FORMATS.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterator

from xxhash import xxh3_64

__all__ = ["StateDigest"]

_SIGN_BIT = 1 << 63


class StateDigest:
    """XXH3-64 of all that passed."""

    def __init__(self) -> None:
        self._hash = xxh3_64()

    def passing(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the chunks unchanged, each added to the digest on its way."""
        for chunk in chunks:
            self._hash.update(chunk)
            yield chunk

    @property
    def value(self) -> int:
        """The digest as a signed integer."""
        unsigned = self._hash.intdigest()
        return unsigned - 2 * _SIGN_BIT if unsigned >= _SIGN_BIT else unsigned
