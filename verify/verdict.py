"""The verdict of a verification: verdict.json and the exit code.

Place in the data path: the last step. Pure: made from the checks' results, written by `verify.run`.

Invariants: the worst of the checks wins, fail > unknown > pass; a promise without a check is
unknown, never pass; witnesses are at most 32 per check, smallest first, and `violations` counts all
of them.

Source: docs/RUN_FORMAT.md, verdict.json.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PROMISES", "WITNESSES_MAX", "CheckResult", "Outcome", "Verdict", "worst"]

PROMISES: Final = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8")
WITNESSES_MAX: Final = 32


class Outcome(enum.Enum):
    PASS = "pass"  # noqa: S105 - a verdict, no password
    UNKNOWN = "unknown"
    FAIL = "fail"

    @property
    def exit_code(self) -> int:
        return {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 2}[self]


_BADNESS: Final = {Outcome.PASS: 0, Outcome.UNKNOWN: 1, Outcome.FAIL: 2}


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; unknown if there is none, since nothing was proven."""
    return max(outcomes, key=_BADNESS.__getitem__, default=Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    id: str
    name: str
    promise: str | None
    verdict: Outcome
    reason: str | None = None
    examined: int = 0
    violations: int = 0
    witnesses: Sequence[Mapping[str, object]] = field(default=())

    def as_json(self) -> dict[str, object]:
        assert len(self.witnesses) <= WITNESSES_MAX
        return {
            "id": self.id,
            "name": self.name,
            "promise": self.promise,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "examined": self.examined,
            "violations": self.violations,
            "witnesses": [dict(witness) for witness in self.witnesses],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole verdict of a run."""

    checks: Sequence[CheckResult]
    coverage: Mapping[str, object] = field(default_factory=dict)
    not_shown: Sequence[str] = field(default=())
    engines: tuple[str, ...] = ()  # the engines that judged; empty if none could

    @property
    def outcome(self) -> Outcome:
        return worst(check.verdict for check in self.checks)

    @property
    def promises(self) -> dict[str, Outcome]:
        return {
            promise: worst(check.verdict for check in self.checks if check.promise == promise)
            for promise in PROMISES
        }

    def as_json(self) -> dict[str, object]:
        return {
            "verdict": self.outcome.value,
            "promises": {name: outcome.value for name, outcome in self.promises.items()},
            "checks": [check.as_json() for check in self.checks],
            "coverage": dict(self.coverage),
            "not_shown": list(self.not_shown),
            "engines": list(self.engines),
        }

    def as_text(self) -> str:
        """Return the content of verdict.json."""
        return json.dumps(self.as_json(), indent=1) + "\n"
