"""Exit codes of the command line (README, "How to read the verdict").

Invariant: 1 is a verdict of fail and nothing else; `ledgermq.__main__` ensures it.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "EXIT_BROKEN_PIPE",
    "EXIT_ERROR",
    "EXIT_FAIL",
    "EXIT_INTERNAL",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "EXIT_USAGE",
]

EXIT_OK: Final = 0
EXIT_FAIL: Final = 1  # a verdict of fail
EXIT_ERROR: Final = 2  # a verdict of unknown; the command could not do its work, which is as much
EXIT_USAGE: Final = 64
EXIT_INTERNAL: Final = 70  # an unforeseen exception
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE: Final = 141  # 128 + SIGPIPE
