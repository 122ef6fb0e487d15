"""The page docs/PROMISES.md, from `verify.engine_promises`: `python -m verify.promise_page`.

Place in the data path: none; a test compares the page with the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from verify.engine_promises import (
    ALL,
    ALWAYS,
    FAULTS,
    LEFT_OUT,
    MODES,
    WITHHELD,
    Fault,
    Hazard,
    Loss,
)
from verify.verdict import PROMISES

__all__ = ["promise_page"]

_LOSS_WORDS: Final = {
    Loss.NONE: "all promised",
    Loss.STALE: "stale",
    Loss.SHOWN: "shown",
    Loss.COMMANDS: "commands",
    Loss.ACKNOWLEDGED: "acknowledged",
    Loss.EVERYTHING: "everything",
    Loss.TRUST: "not mended",
}


def promise_page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# What each engine promises"
    yield ""
    yield (
        "Made of `verify/engine_promises.py` by `python -m verify.promise_page`. The promises are "
        "those of [DESIGN](DESIGN.md#2-what-it-promises), the checks those of [RULES](RULES.md); "
        "why it is so is in [decision 28](decisions/0028-master-and-slaves.md) and "
        "[decision 30](decisions/0030-promises-by-engine.md)."
    )
    yield ""
    yield (
        "`raft` promises all of G1 to G8, whatever happens to a minority of a group. `pysyncobj` "
        "is judged by all of them too, although PySyncObj itself does not claim them "
        "([decision 11](decisions/0011-what-the-seam-demands.md)); so is every run of another "
        "system. A master with its slaves (`async`, `sync`) promises all of them as long as "
        "nothing happens, and less once something has happened that its mode, which is replication "
        "and flush, can't outlive. A check that is not promised is judged and reported all the "
        "same: it makes no run fail."
    )
    yield from _modes()
    yield from _losses()
    yield from _faults()
    yield from _left_out()


def _modes() -> Iterator[str]:
    yield ""
    yield "## By mode"
    yield ""
    yield f"| once | {' | '.join(mode.name for mode in MODES)} |"
    yield f"|---|{'---|' * len(MODES)}"
    yield f"| nothing happened | {' | '.join('all promised' for _ in MODES)} |"
    for hazard in Hazard:
        losses = " | ".join(_LOSS_WORDS[mode.losses[hazard]] for mode in MODES)
        yield f"| {hazard.value} | {losses} |"
    yield ""
    yield (
        "`sync` keeps what it acknowledged where the slave with the longest log is made the "
        "master: as many nodes had it as `in_sync_replicas` says, and logs have no gaps. Several "
        "lines may hold for one run; then none of what any of them takes away is promised."
    )


def _losses() -> Iterator[str]:
    yield ""
    yield "## What is not promised then"
    yield ""
    yield f"| | may be lost | {' | '.join(PROMISES)} |"
    yield f"|---|---|{'---|' * len(PROMISES)}"
    for loss, withheld in WITHHELD.items():
        if loss is Loss.NONE:
            continue
        cells = []
        for promise in PROMISES:
            checks = withheld.get(promise, frozenset())
            cells.append("**none**" if checks == ALL else " ".join(sorted(checks, key=_order)))
        yield f"| {_LOSS_WORDS[loss]} | {loss.value} | {' | '.join(cells)} |"
    yield ""
    yield (
        "A cell names the checks that are not promised; where it says **none**, nothing of the "
        f"promise is given but {', '.join(sorted(ALWAYS, key=_order))}. An empty one: all of the "
        "promise is given."
    )


def _faults() -> Iterator[str]:
    yield ""
    yield "## What faults do"
    yield ""
    yield (
        "A fault counts where it took effect, or may have. Power and disks count where they were "
        "the master's, by the trace (where no trace tells, they were); a slave is made the master "
        "where another node than before says that it is. Every fault that does something also "
        f"means that {Hazard.AWAY.value}. A fault that is not in this list excuses nothing."
    )
    yield ""
    yield "| what it does | faults |"
    yield "|---|---|"
    for kind in Fault:
        names = [
            f"`{name}`"
            for name, kinds in FAULTS.items()
            if kind in kinds or (kind is Fault.NOTHING and not kinds)
        ]
        yield f"| {kind.value} | {', '.join(sorted(names))} |"


def _left_out() -> Iterator[str]:
    yield ""
    yield "## Rules that say nothing of a master and its slaves"
    yield ""
    for reason in dict.fromkeys(LEFT_OUT.values()):
        rules = [name for name, why in LEFT_OUT.items() if why == reason]
        yield f"- {', '.join(sorted(rules, key=_order))}: {reason}."


def _order(check: str) -> tuple[str, int]:
    return check[0], int(check[1:])


if __name__ == "__main__":
    sys.stdout.write(promise_page())
