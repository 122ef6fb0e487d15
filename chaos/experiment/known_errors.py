"""Errors with which an experiment may end early: they are told in one line, any other is a bug.

Place in the data path: `chaos.experiment.experiment` catches them at its edge.
"""

from __future__ import annotations

from typing import Final

from chaos.cluster.layout import LayoutError
from chaos.cluster.processes import ProcessError
from chaos.links.base import LinksError
from chaos.recording.history import HistoryError
from chaos.systems.base import SystemFailedError
from client.errors import ClientError

__all__ = ["KNOWN_ERRORS", "first_of"]

KNOWN_ERRORS: Final = (
    ClientError,
    HistoryError,
    LayoutError,
    LinksError,
    OSError,
    ProcessError,
    SystemFailedError,
)


def first_of(errors: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of nested groups. A bug among them is raised as it is."""
    _, bugs = errors.split(KNOWN_ERRORS)
    if bugs is not None:
        raise bugs
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
