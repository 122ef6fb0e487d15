"""The agreement of two engines: equal in every check, count and witness, or the check is unknown.

Place in the data path: between what DuckDB and Spark report of a run and the verdict. Pure.

Invariants: no engine outvotes the other; a check on which they differ is unknown and names both,
whatever each reported, since one of them is wrong and nobody knows which. Where they differ in the
coverage, one of them has read the run wrong: no check passes then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verify.verdict import CheckResult, Outcome

__all__ = ["agreed", "coverage_difference", "doubted"]


def agreed(
    one: Sequence[CheckResult], other: Sequence[CheckResult], *, names: tuple[str, str]
) -> list[CheckResult]:
    """Merge the results of both engines, in the order of `one`. `names` are the engines' names."""
    theirs = {result.id: result for result in other}
    results = [_agreed(result, theirs.pop(result.id, None), names) for result in one]
    return [*results, *(_agreed(result, None, names[::-1]) for result in theirs.values())]


def coverage_difference(
    one: Mapping[str, object], other: Mapping[str, object], *, names: tuple[str, str]
) -> str | None:
    """Return the sentence that names what the two coverages differ in; None if they are equal."""
    differing = sorted(
        key
        for key in one.keys() | other.keys()
        if key not in one or key not in other or one[key] != other[key]
    )
    if not differing:
        return None
    return (
        f"{names[0]} and {names[1]} differ in the coverage, which is a defect of the verifier: "
        + ", ".join(differing)
    )


def doubted(results: Sequence[CheckResult], reason: str) -> list[CheckResult]:
    """Return the results with every pass made unknown for `reason`."""
    return [
        replace(result, verdict=Outcome.UNKNOWN, reason=reason)
        if result.verdict is Outcome.PASS
        else result
        for result in results
    ]


def _agreed(one: CheckResult, other: CheckResult | None, names: tuple[str, str]) -> CheckResult:
    if other is not None and one.as_json() == other.as_json():
        return one
    if other is None:
        difference = f"{names[0]} judged it and {names[1]} left it out"
    elif one.verdict is not other.verdict:
        difference = f"{names[0]} says {one.verdict.value}, {names[1]} {other.verdict.value}"
    elif (one.violations, one.examined) != (other.violations, other.examined):
        difference = (
            f"{names[0]} counts {one.violations} violations in {one.examined} rows, "
            f"{names[1]} {other.violations} in {other.examined}"
        )
    else:
        difference = f"{names[0]} and {names[1]} show other witnesses"
    return replace(
        one,
        promised=True,
        verdict=Outcome.UNKNOWN,
        reason=f"the engines differ, which is a defect of the verifier: {difference}",
    )
