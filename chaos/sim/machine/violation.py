"""How the simulator says that something is wrong, and how it makes a node die.

`Violation` ends a seed: the system under test broke a rule. `CrashNow` is no error at all: it
unwinds the stack of a node that dies in the middle of something.
"""

from __future__ import annotations

__all__ = ["CrashNow", "Violation"]


class Violation(Exception):
    """A rule is broken. `rule` names it (R1 to R12, or a word), `detail` says how."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


class CrashNow(BaseException):
    """The node dies here. A BaseException, so that no handler of the node can survive it."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place
