"""Which checks of a run its engine promises, given what its faults have done.

Place in the data path: after the checks, before the verdict: `verify.run` marks the results that
are not promised, so that they make no run fail, and lists what was not promised, and why.

Both engines that judge have the same rows of `struck_nodes` and `takeovers`, or the check is not
excused by the one that lacks them, and they disagree.

Invariants: a run of another system, or of an engine that elects, is not changed at all; a check is
excused only by a fault that was seen to take effect, or may have.

Source: docs/PROMISES.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from verify.engine_promises import (
    FAULTS,
    LEFT_OUT,
    Fault,
    Hazard,
    Loss,
    Mode,
    mode_named,
    withheld_by,
)
from verify.sources.manifest import Manifest
from verify.verdict import PROMISES, CheckResult, NotPromised, Outcome

__all__ = ["PROMISE_STAGES", "Given", "left_out_by_engine", "mode_of", "promises_given"]

STRUCK: Final = "struck_nodes"
MASTERS: Final = "masters"
TAKEOVERS: Final = "takeovers"
LOST: Final = "acknowledged_lost"
PROMISE_STAGES: Final = (LOST, MASTERS, STRUCK, TAKEOVERS)
"""The stages that say what the faults did to masters and slaves, and how much was lost."""

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a run's engine promises. `by_hazard`: the faults of each hazard that the run had;
    `lost`: how many acknowledged messages no log has."""

    mode: Mode
    by_hazard: Mapping[Hazard, Sequence[str]] = field(default_factory=dict)
    lost: int = 0

    def is_promised(self, check: CheckResult) -> bool:
        return not any(self._withholding(check.id, check.promise))

    def marked(self, checks: Iterable[CheckResult]) -> list[CheckResult]:
        """Return the checks, with those that are not promised marked."""
        return [replace(check, promised=self.is_promised(check)) for check in checks]

    def not_promised(self, checks: Sequence[CheckResult]) -> list[NotPromised]:
        """Return what is not promised, by promise, with what these checks say of it."""
        found = []
        for promise in PROMISES:
            of_promise = [check for check in checks if check.promise == promise]
            without = [check for check in of_promise if not check.promised]
            if not without:
                continue
            hazards = {
                hazard for check in without for hazard in self._withholding(check.id, check.promise)
            }
            ordered = [hazard for hazard in Hazard if hazard in hazards]
            found.append(
                NotPromised(
                    promise=promise,
                    mode=self.mode.name,
                    checks=[check.id for check in without],
                    is_whole=self._is_whole(promise, ordered),
                    because={hazard.value: self.by_hazard[hazard] for hazard in ordered},
                    lost=self.lost if promise == "G1" else 0,
                    violations={
                        f"{check.id} ({check.name})": check.violations
                        for check in without
                        if check.verdict is Outcome.FAIL
                    },
                )
            )
        return found

    def _withholding(self, check: str, promise: str | None) -> list[Hazard]:
        return [
            hazard
            for hazard in self.by_hazard
            if withheld_by(self.mode.losses[hazard], check, promise)
        ]

    def _is_whole(self, promise: str, hazards: Iterable[Hazard]) -> bool:
        """Return whether all of a promise is withheld, but for what always holds."""
        return any(withheld_by(self.mode.losses[hazard], "", promise) for hazard in hazards)


def mode_of(manifest: Manifest) -> Mode | None:
    """Return the mode of a run of our own masters and slaves; None: judged by every check."""
    if not manifest.is_master_slave:
        return None
    return mode_named(manifest.engine, manifest.flush or "async")


def left_out_by_engine(manifest: Manifest) -> Mapping[str, str]:
    """Return the rules that say nothing of the run's engine, with the reason."""
    return LEFT_OUT if manifest.is_master_slave else {}


def promises_given(
    mode: Mode,
    *,
    effects: Rows,
    struck: Rows,
    masters: Rows,
    takeovers: Rows,
    lost: int,
    in_sync_replicas: int,
) -> Given:
    """Return what `mode` promises in a run.

    `effects`: rows of the stage `fault_counts`; others that are rows are those of `struck_nodes`,
    `masters` and `takeovers`. `lost`: how many acknowledged messages no log has.
    """
    happened = _Happened(struck, masters, takeovers)
    found: dict[Hazard, Sequence[str]] = {
        Hazard.AWAY: _names(
            row
            for row in effects
            if FAULTS.get(str(row["name"])) and row["effect"] in {"taken", "unknown"}
        ),
        Hazard.POWER: happened.of_masters(Fault.POWER),
        Hazard.LIES: happened.lies(),
        Hazard.TAKEOVER: happened.taken_over(),
        Hazard.TAKEOVER_AFTER_POWER: happened.taken_over_after_power(),
        Hazard.TAKEOVER_BEHIND: happened.taken_over_behind(),
        Hazard.EMPTIED: happened.emptied(),
        Hazard.DISKS: happened.disks(in_sync_replicas),
        Hazard.DAMAGE: happened.of_nodes(Fault.DAMAGE),
    }
    return Given(
        mode=mode,
        by_hazard={
            hazard: names
            for hazard, names in found.items()
            if names and mode.losses[hazard] is not Loss.NONE
        },
        lost=lost,
    )


_BY_HAND: Final = "by hand"


class _Happened:
    """The faults of a run by the nodes that they struck, and who was the master when."""

    def __init__(self, struck: Rows, masters: Rows, takeovers: Rows) -> None:
        self._struck = [row for row in struck if FAULTS.get(str(row["name"]))]
        self._takeovers = takeovers
        self._masters: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for row in masters:
            self._masters[str(row["broker_group"])].append((_time(row["t"]), str(row["node"])))

    def of_nodes(self, kind: Fault) -> list[str]:
        return _names(self._of(kind))

    def of_masters(self, kind: Fault) -> list[str]:
        return _names(row for row in self._of(kind) if row["was_master"] is not False)

    def lies(self) -> list[str]:
        liars = {(row["broker_group"], row["node"]) for row in self._of(Fault.LIES)}
        dark = {(row["broker_group"], row["node"]) for row in self._of(Fault.POWER)}
        both = liars & dark
        return _names(
            row
            for kind in (Fault.LIES, Fault.POWER)
            for row in self._of(kind)
            if (row["broker_group"], row["node"]) in both
        )

    def taken_over(self) -> list[str]:
        """Return what made slaves masters: the disks that were lost, or nothing that is known."""
        groups = {row["broker_group"] for row in self._takeovers}
        lost = [
            row
            for row in self._of(Fault.DISK)
            if row["broker_group"] in groups and row["was_master"] is not False
        ]
        return _names(lost) or ([_BY_HAND] if groups else [])

    def taken_over_after_power(self) -> list[str]:
        groups = {row["broker_group"] for row in self._takeovers}
        return _names(row for row in self._of(Fault.POWER) if row["broker_group"] in groups)

    def taken_over_behind(self) -> list[str]:
        behind = any(
            row["others_index"] is not None
            and (row["index"] is None or _time(row["others_index"]) > _time(row["index"]))
            for row in self._takeovers
        )
        return self.taken_over() if behind else []

    def emptied(self) -> list[str]:
        """Return the faults behind which the master went on that had lost its disk, or nobody."""
        return _names(
            row
            for row in self._of(Fault.DISK)
            if row["was_master"] is not False
            and self._next_master(str(row["broker_group"]), _time(row["t_start"]))
            in {None, str(row["node"])}
        )

    def disks(self, in_sync_replicas: int) -> list[str]:
        nodes: dict[object, set[object]] = defaultdict(set)
        for row in self._of(Fault.DISK):
            nodes[row["broker_group"]].add(row["node"])
        full = {group for group, lost in nodes.items() if len(lost) >= in_sync_replicas}
        return _names(row for row in self._of(Fault.DISK) if row["broker_group"] in full)

    def _of(self, kind: Fault) -> list[Mapping[str, object]]:
        return [row for row in self._struck if kind in FAULTS[str(row["name"])]]

    def _next_master(self, group: str, after: int) -> str | None:
        later = [report for report in self._masters[group] if report[0] > after]
        return min(later)[1] if later else None


def _names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    return sorted({str(row["name"]) for row in rows})


def _time(value: object) -> int:
    assert isinstance(value, int)
    return value
