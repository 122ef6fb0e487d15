"""Exit codes of the command line (README, "How to read the verdict")."""

from __future__ import annotations

from typing import Final

__all__ = ["EXIT_ERROR", "EXIT_FAIL", "EXIT_OK", "EXIT_UNKNOWN", "EXIT_USAGE"]

EXIT_OK: Final = 0
EXIT_FAIL: Final = 1  # a verdict of fail
EXIT_UNKNOWN: Final = 2  # a verdict of unknown
EXIT_ERROR: Final = 2  # the command could not do its work, so nothing is known
EXIT_USAGE: Final = 64
