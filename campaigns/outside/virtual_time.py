"""Virtual time: a heap of callbacks, and processes as generators.

Place in the data path: below the model cluster. A process yields nanoseconds to sleep, or a `Wait`
that somebody answers (or that times out and answers None).

Invariants: what happens at one time happens in the order in which it was planned; nothing reads a
clock or draws a number here, so that a seed is one run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

__all__ = ["Process", "Simulator", "Wait"]

Process: TypeAlias = Generator[Any, Any, Any]


class Wait:
    """An answer that comes once; later ones are dropped."""

    __slots__ = ("_callbacks", "answer", "done")

    def __init__(self) -> None:
        self.done = False
        self.answer: Any = None
        self._callbacks: list[Callable[[Any], None]] = []

    def resolve(self, answer: Any = None) -> None:
        if self.done:
            return
        self.done, self.answer = True, answer
        for callback in self._callbacks:
            callback(answer)

    def then(self, callback: Callable[[Any], None]) -> None:
        if self.done:
            callback(self.answer)
        else:
            self._callbacks.append(callback)


class Simulator:
    """The clock and everything that is planned."""

    def __init__(self) -> None:
        self.now = 0
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (max(time, self.now), next(self._order), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run(self, until: int) -> None:
        while self._planned and self._planned[0][0] <= until:
            self.now, _, action = heapq.heappop(self._planned)
            action()
        self.now = max(self.now, until)

    def spawn(self, process: Process) -> None:
        self._step(process, None)

    def timeout(self, wait: Wait, delay: int) -> Wait:
        self.after(delay, wait.resolve)
        return wait

    def _step(self, process: Process, answer: Any) -> None:
        try:
            yielded = process.send(answer)
        except StopIteration:
            return
        if isinstance(yielded, Wait):
            yielded.then(lambda value: self.after(0, lambda: self._step(process, value)))
        else:
            self.after(yielded, lambda: self._step(process, None))
