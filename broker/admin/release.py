"""Which code this process runs: the version, and a digest of the source that it was started with.

Place in the data path: the answer to LEDGERMQ_STATUS; the laboratory tells by it which nodes of a
mixed cluster run an older release. The version alone would not tell two states of the source apart
that no release lies between.

Invariant: what is answered does not change while the process lives, whatever becomes of the files.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

__all__ = ["VERSION", "release"]

VERSION: Final = "0.2.0"
_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("broker", "raft", "remoting")
_DIGITS: Final = 12


@functools.cache
def release() -> str:
    """Return the version and the digest of the broker's own source, such as 0.2.0+5e1c9b0d7a42.

    Raises OSError where the source can't be read.
    """
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            content = path.read_bytes()
            name = path.relative_to(_ROOT).as_posix()
            digest.update(f"{name}\n{len(content)}\n".encode())
            digest.update(content)
    return f"{VERSION}+{digest.hexdigest()[:_DIGITS]}"
