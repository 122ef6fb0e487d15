"""The exceptions of the simulator: a broken rule, and the death of a node.

`Violation` ends a seed: the system under test broke a rule. `CrashNow` is no error at all: it
unwinds the stack of a node that dies in the middle of an operation.
"""

from __future__ import annotations

__all__ = ["CrashNow", "Violation"]


class Violation(Exception):
    """A broken rule. `rule` names it (R1 to R12, or a word), `detail` says how it was broken."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


class CrashNow(BaseException):
    """The death of a node. A BaseException, so that no handler of the node survives it."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place
