"""The ends of failed commands: one line on stderr, and an exit code.

Place in the data path: `ledgermq.cli` ends its commands with it.
"""

from __future__ import annotations

import logging
import sys
from typing import NoReturn

import typer

from ledgermq.exit_codes import EXIT_ERROR

__all__ = ["log_to_stderr", "reason_of", "stop_with"]


def stop_with(error: Exception | str, code: int = EXIT_ERROR) -> NoReturn:
    text = reason_of(error) if isinstance(error, OSError) else error
    sys.stderr.write(f"ledgermq: {text}\n")
    raise typer.Exit(code)


def reason_of(error: OSError) -> str:
    """Return what went wrong, and with which file, without the error's number."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
