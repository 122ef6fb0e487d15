"""The ends of failed commands: one line on stderr, and an exit code.

Place in the data path: `ledgermq.cli` ends its commands with it.
"""

from __future__ import annotations

import logging
import sys
from typing import NoReturn

import typer

from ledgermq.exit_codes import EXIT_ERROR

__all__ = ["first_of", "log_to_stderr", "reason_of", "stop_with"]


def stop_with(error: Exception | str, code: int = EXIT_ERROR) -> NoReturn:
    text = reason_of(error) if isinstance(error, OSError) else error
    sys.stderr.write(f"ledgermq: {text}\n")
    raise typer.Exit(code)


def reason_of(error: OSError) -> str:
    """Return what went wrong, and with which file, without the error's number."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of nested groups: the others of tasks side by side follow from it, or
    say the same."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first


def log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
