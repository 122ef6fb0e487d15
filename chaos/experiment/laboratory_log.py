"""What the laboratory's own process logs during a run: clients that fail on purpose say much.

Place in the data path: `experiment` holds it for as long as a run lasts; clients, proxies and links
of the workload log through Python's logging. The processes of the cluster have files of their own
in RUN/output.

Invariants: nothing of it goes to the console, whose lines are progress and verdict; the file exists
once something was logged, and is bounded: of much more than its size the end is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

__all__ = ["LABORATORY_LOG", "laboratory_log"]

LABORATORY_LOG: Final = "laboratory.log"
_SIZE_MAX: Final = 4 << 20  # twice: one file is being written, one is full


@contextmanager
def laboratory_log(run: Path) -> Iterator[None]:
    """Write what this process logs as a warning or worse to a file in `run`."""
    handler = RotatingFileHandler(
        run / LABORATORY_LOG, maxBytes=_SIZE_MAX, backupCount=1, encoding="utf-8", delay=True
    )
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
