"""What each engine promises, and under which faults it does not: one table.

Place in the data path: `verify.promised` reads from it which checks of a run are promised, and
`verify.promise_page` prints it as docs/PROMISES.md. Data and pure functions, no run.

The engines `raft` and `pysyncobj`, and systems that are not ours, are judged by every check that
applies. A master with its slaves (`async`, `sync`) gives less, by its mode, which is replication
and flush: an entry is served once the master has appended it, whoever else has it.

How much of what was served may be gone is a *loss*:

- SHOWN: what was read, but not acknowledged; who has read it passes over what comes in its place
  (A5), while A24 still counts what was acknowledged and is in no log;
- COMMANDS: also what was acknowledged of commands without messages (topics, offsets, popped
  messages), which wait for no slave;
- ACKNOWLEDGED: anything.

Invariants: each check that is named belongs to the promise under which it stands; each fault of the
laboratory is classified (tests compare both). A fault that the table does not know excuses nothing.

Source: decision 28, decision 30; broker/ha.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "ALL",
    "ALWAYS",
    "FAULTS",
    "LEFT_OUT",
    "MODES",
    "WITHHELD",
    "Fault",
    "Hazard",
    "Loss",
    "Mode",
    "mode_named",
    "withheld_by",
]

ALL: Final = "all"
"""In place of names of checks: every check of the promise, but for those of `ALWAYS`."""

ALWAYS: Final = frozenset({"A18", "R4", "R15", "S1", "S2", "S9"})
"""Checks that no loss excuses: contents are those that were sent, a master cuts no log of its own,
an answer waits for as many nodes as the mode says, queues are those of the log, and replicas agree
in the end. Damaged bytes and an emptied master excuse some of them by name."""


class Fault(enum.Enum):
    """What a fault of the laboratory may do to a master or a slave."""

    NOTHING = "nothing to either"
    AWAY = "stops a broker, or keeps it from others, for a while"
    POWER = "takes what was not fsynced"
    LIES = "lets an fsync say that it has happened"
    DISK = "takes a node's log, or its newest part"
    DAMAGE = "changes bytes of a log"


class Hazard(enum.Enum):
    """What came of a run's faults; the value says it in words that follow on "once"."""

    AWAY = "a broker was stopped or cut off"
    POWER = "a master lost power"
    LIES = "a node lost power whose fsyncs had lied"
    TAKEOVER = "a slave was made the master"
    TAKEOVER_AFTER_POWER = "a slave was made the master, and a node had lost power"
    TAKEOVER_BEHIND = "a slave was made the master that was behind another one"
    EMPTIED = "a master went on without its disk"
    DISKS = "as many nodes lost their disks as an answer waits for"
    DAMAGE = "bytes of a log were changed"


class Loss(enum.Enum):
    """What a mode may lose under a hazard, or not do."""

    NONE = "nothing"
    STALE = "nothing; slaves answer by what they have"
    SHOWN = "what was shown and not acknowledged"
    COMMANDS = "that, and acknowledged commands without messages"
    ACKNOWLEDGED = "what was acknowledged"
    EVERYTHING = "the master's whole log"
    TRUST = "nobody mends it"


Checks = frozenset[str] | str  # names, or ALL


def _checks(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STALE: Final[Mapping[str, Checks]] = {
    "G3": _checks("A6"),
    "G4": _checks("T6"),
    # A22: a member lets a queue go once what it has sent back is answered, or ten seconds later; a
    # master waits for a slave that is cut off until it gives the silent connection up.
    "G5": _checks("A12 A22 C9 C14 C19 M6 M9 M17 S5 S8"),
    "G6": ALL,
    "G8": _checks("A14 A16 D5"),
}
_SHOWN: Final[Mapping[str, Checks]] = {
    "G1": _checks("A5 R6 S6"),
    "G2": ALL,
    "G3": _checks("A1 A6 A7 A8 A10 A13 C4 R5"),
    "G4": _checks("T4 T5"),
    "G5": _checks("A12 C9 C14 C19 R10 R14 S5 S8"),
    "G6": ALL,
}
_COMMANDS: Final[Mapping[str, Checks]] = {
    **_SHOWN,
    "G1": _checks("A5 P10 R6 S6"),
    "G3": _checks("A1 A6 A7 A8 A10 A13 C4 M1 R5"),
    "G4": _checks("T4 T5 T6 T8 T14"),
    "G5": ALL,
    "G7": _checks("D2 D6"),
    "G8": _checks("D5 M12 P7"),
}
_ACKNOWLEDGED: Final[Mapping[str, Checks]] = {**_COMMANDS, "G1": ALL, "G3": ALL, "G4": ALL}

WITHHELD: Final[Mapping[Loss, Mapping[str, Checks]]] = MappingProxyType(
    {
        Loss.NONE: {},
        Loss.STALE: _STALE,
        Loss.SHOWN: _SHOWN,
        Loss.COMMANDS: _COMMANDS,
        Loss.ACKNOWLEDGED: _ACKNOWLEDGED,
        Loss.EVERYTHING: {
            **_ACKNOWLEDGED,
            "G3": _checks("A1 A6 A7 A8 A10 A13 C4 M1 R5 S9"),
            "G8": _checks("A17 D5 M12 P7"),
        },
        Loss.TRUST: {"G3": _checks("S1 S2 S9"), "G8": _checks("A17")},
    }
)
"""The checks that are not promised where a mode may lose so much, by promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One mode of replication and flush, and what it may lose under each hazard."""

    engine: str
    flush: str
    losses: Mapping[Hazard, Loss]

    @property
    def name(self) -> str:
        return f"{self.engine}/{self.flush}"


_OF_EACH: Final = {
    Hazard.AWAY: Loss.STALE,
    Hazard.LIES: Loss.ACKNOWLEDGED,
    Hazard.TAKEOVER_AFTER_POWER: Loss.ACKNOWLEDGED,
    Hazard.TAKEOVER_BEHIND: Loss.ACKNOWLEDGED,
    Hazard.EMPTIED: Loss.EVERYTHING,
    Hazard.DISKS: Loss.ACKNOWLEDGED,
    Hazard.DAMAGE: Loss.TRUST,
}


def _mode(engine: str, flush: str, *, power: Loss, takeover: Loss) -> Mode:
    losses = {**_OF_EACH, Hazard.POWER: power, Hazard.TAKEOVER: takeover}
    ordered = {hazard: losses[hazard] for hazard in Hazard}
    return Mode(engine=engine, flush=flush, losses=MappingProxyType(ordered))


MODES: Final = (
    # What was acknowledged is fsynced here: a master that comes back has it, and its slaves are cut
    # to that. Enough slaves had it too, so that the one with the longest log can take over.
    _mode("sync", "sync", power=Loss.SHOWN, takeover=Loss.COMMANDS),
    # A master that comes back without its last half second is the master: its slaves, which have
    # it, are cut.
    _mode("sync", "async", power=Loss.ACKNOWLEDGED, takeover=Loss.COMMANDS),
    # No slave need have what was acknowledged.
    _mode("async", "sync", power=Loss.SHOWN, takeover=Loss.ACKNOWLEDGED),
    _mode("async", "async", power=Loss.ACKNOWLEDGED, takeover=Loss.ACKNOWLEDGED),
)


def mode_named(engine: str, flush: str) -> Mode | None:
    """Return the mode; None: the engine is judged by every check."""
    return next((mode for mode in MODES if (mode.engine, mode.flush) == (engine, flush)), None)


def withheld_by(loss: Loss, check: str, promise: str | None) -> bool:
    """Return whether a check of that promise is not promised where so much may be lost."""
    checks = WITHHELD[loss].get(promise or "", frozenset())
    if isinstance(checks, str):
        return check not in ALWAYS
    return check in checks


def _names(text: str, what: Fault) -> dict[str, frozenset[Fault]]:
    return {name: frozenset({what}) - {Fault.NOTHING} for name in text.split()}


FAULTS: Final[Mapping[str, frozenset[Fault]]] = MappingProxyType(
    {
        **_names(
            "cut-clients cut-one-client cut-name-servers cut-one-name-server cut-registration "
            "slow-clients slow-registration reset-clients kill-name-server kill-name-servers "
            "pause-name-servers clock-jump clock-skew clock-drift clock-strobe changed-setting",
            Fault.NOTHING,
        ),
        **_names(
            # Links between brokers.
            "partition-leader partition-halves partition-third partition-leader-in-majority "
            "partition-leader-in-minority partition-ring partition-bridge partition-all "
            "isolate-node one-way-cut flapping-links swizzled-cuts slow-links gray-slow late-burst "
            "jitter bandwidth-limit sliced-streams reset-connections limited-bytes slow-close "
            "half-open half-open-new half-open-syn drop-frames delay-frames duplicate-frames "
            "reorder-frames damage-frames packet-loss "
            # Processes. What they wrote is in the page cache, and outlives them.
            "kill kill-minority kill-majority kill-all terminate pause pause-minority "
            "pause-majority pause-in-turns cpu-starved restart-storm kill-in-recovery "
            "rolling-restart chase-leader kill-in-snapshot kill-in-install out-of-descriptors "
            "out-of-memory full-disk rolling-setting older-release failpoint-crash "
            "failpoint-delay failpoint-error disk-no-space disk-write-error disk-fsync-error "
            "disk-short-write fsync-stuck fsync-slow lost-derived-files rotten-derived-files "
            "foreign-disk "
            # Members, which these engines refuse to change.
            "add-learner add-voter transfer-leader change-while-cut promote-slave",
            Fault.AWAY,
        ),
        **_names("power-failure power-failure-all", Fault.POWER),
        **_names("fsync-lies", Fault.LIES),
        **_names(
            "wiped-store lost-machine old-copy remove-follower remove-leader replace-member",
            Fault.DISK,
        ),
        **_names("bit-rot zeroed-page stale-block lost-file", Fault.DAMAGE),
        # The last bytes: what was fsynced of them is damage, the rest as after a power failure.
        "torn-tail": frozenset({Fault.POWER, Fault.DAMAGE}),
    }
)
"""What each fault of docs/FAULTS.md may do to a master or a slave. All but those that do nothing
stop a broker, too."""

_ELECTED: Final = "nobody is elected: a master is configured, and its term is always 1"

LEFT_OUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("R1", "R2", "R3", "R7", "R11", "R13", "M11"), _ELECTED),
        "R9": "no majority has to have fsynced what is served; what an answer waits for R15 asks, "
        "and what a power failure took A4, A5 and T3",
        "R12": "nobody confirms that a master is the only one, so there is no such read",
    }
)
"""Rules that say nothing of a master and its slaves, and why: they are left out of such a run."""
