"""Answers that tell how far things are: given by a leader that has just proved itself.

Place in the data path: offsets, bounds and progress are read after a ReadIndex round (promise G6).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.request.leadership import Leadership
from broker.request.request import RefusedError, Request

__all__ = ["answer_at_read_point"]


async def answer_at_read_point(
    leadership: Leadership, request: Request, answer: Callable[[Request], None]
) -> None:
    """Call `answer` once what was committed before is applied; refuse with 14 elsewhere."""
    try:
        await leadership.wait_for_read_point()
        answer(request)
    except RefusedError as refused:
        request.refuse(refused)
