"""Calls that tests put failpoints at."""

from __future__ import annotations

DONE: list[int] = []


def plain(number: int) -> int:
    DONE.append(number)
    return 2 * number


class Owner:
    async def slow(self, name: str) -> str:
        return name
