"""The verdict of a verification: verdict.json and the exit code.

Place in the data path: the last step. Pure: made from the checks' results, written by `verify.run`.

Invariants: the worst of the checks wins, fail > unknown > pass; a promise without a check is
unknown, never pass; what the run's engine does not promise counts for neither, and is listed;
witnesses are at most 32 per check, smallest first, and `violations` counts all
of them.

Source: docs/RUN_FORMAT.md, verdict.json.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "NOT_PROMISED",
    "PROMISES",
    "WITNESSES_MAX",
    "CheckResult",
    "NotPromised",
    "Outcome",
    "Verdict",
    "worst",
]

PROMISES: Final = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8")
WITNESSES_MAX: Final = 32
NOT_PROMISED: Final = "not promised"
"""In verdict.json, of a promise that the run's engine does not give under the run's faults."""


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
    """The result of one check. `promised`: whether the run's engine promises it under the faults
    that the run had; where not, it makes no run fail."""

    id: str
    name: str
    promise: str | None
    verdict: Outcome
    reason: str | None = None
    examined: int = 0
    violations: int = 0
    witnesses: Sequence[Mapping[str, object]] = field(default=())
    promised: bool = True

    def as_json(self) -> dict[str, object]:
        assert len(self.witnesses) <= WITNESSES_MAX
        fields: dict[str, object] = {
            "id": self.id,
            "name": self.name,
            "promise": self.promise,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "examined": self.examined,
            "violations": self.violations,
            "witnesses": [dict(witness) for witness in self.witnesses],
        }
        return fields if self.promised else fields | {"promised": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPromised:
    """What of one promise the run's engine does not give. `is_whole`: all of it, but for checks
    that nothing excuses; `because`: what happened, and by which faults; `lost`: how many
    acknowledged messages no log has; `violations`: by check, where it failed."""

    promise: str
    mode: str
    checks: Sequence[str]
    is_whole: bool
    because: Mapping[str, Sequence[str]]
    lost: int
    violations: Mapping[str, int]

    @property
    def sentence(self) -> str:
        what = f"{self.promise} is" if self.is_whole else f"of {self.promise} {_some(self.checks)}"
        once = ", or ".join(f"{hazard} ({', '.join(by)})" for hazard, by in self.because.items())
        broken = [f"{name} {count}" for name, count in self.violations.items()]
        if self.lost:
            word = "message" if self.lost == 1 else "messages"
            broken.insert(0, f"{self.lost} acknowledged {word} lost")
        found = ", ".join(broken) or "none of these checks failed"
        return f"{self.mode}: {what} not promised once {once}: {found}"

    def as_json(self) -> dict[str, object]:
        return {
            "promise": self.promise,
            "whole": self.is_whole,
            "checks": list(self.checks),
            "because": {hazard: list(by) for hazard, by in self.because.items()},
            "violations": dict(self.violations),
            "sentence": self.sentence,
        }


def _some(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole verdict of a run. `mode`: that of a master and its slaves, which promises not all;
    None: everything is promised. `lost`: how many
    acknowledged messages of such a run no log has."""

    checks: Sequence[CheckResult]
    coverage: Mapping[str, object] = field(default_factory=dict)
    not_shown: Sequence[str] = field(default=())
    engines: tuple[str, ...] = ()  # the engines that judged; empty if none could
    mode: str | None = None
    not_promised: Sequence[NotPromised] = field(default=())
    lost: int | None = None

    @property
    def outcome(self) -> Outcome:
        return worst(check.verdict for check in self.checks if check.promised)

    @property
    def promises(self) -> dict[str, str]:
        """By promise: pass, fail or unknown, or that it is not promised."""
        return {promise: self._of_promise(promise) for promise in PROMISES}

    def _of_promise(self, promise: str) -> str:
        checks = [check for check in self.checks if check.promise == promise]
        promised = [check for check in checks if check.promised]
        outcome = worst(check.verdict for check in promised)
        is_gone = any(each.promise == promise and each.is_whole for each in self.not_promised)
        if outcome is not Outcome.FAIL and (is_gone or (checks and not promised)):
            return NOT_PROMISED
        return outcome.value

    def as_json(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "verdict": self.outcome.value,
            "promises": self.promises,
            "checks": [check.as_json() for check in self.checks],
            "coverage": dict(self.coverage),
            "not_shown": list(self.not_shown),
            "engines": list(self.engines),
        }
        if self.mode is not None:
            fields["mode"] = self.mode
            fields["acknowledged_lost"] = self.lost
            fields["not_promised"] = [each.as_json() for each in self.not_promised]
        return fields

    def as_text(self) -> str:
        """Return the content of verdict.json."""
        return json.dumps(self.as_json(), indent=1) + "\n"
