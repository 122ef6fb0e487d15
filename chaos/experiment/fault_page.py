"""docs/FAULTS.md, made from the catalogue: every fault, where it runs, how its effect is seen.

    python -m chaos.experiment.fault_page > docs/FAULTS.md

Place in the data path: beside the catalogue; a test compares the page with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from chaos.experiment.world_catalogue import worlds_of
from chaos.nemesis import failpoint, member, network, process, setting, store
from chaos.nemesis.base import FaultSpec
from chaos.nemesis.catalogue import CATALOGUE

__all__ = ["page"]

_CLASSES: Final = (
    ("Network", network),
    ("Processes", process),
    ("Stores", store),
    ("Members", member),
    ("Settings and releases", setting),
    ("Failpoints, disks, power, clocks", failpoint),
)
_COMMAND: Final = "python -m chaos.experiment.fault_page > docs/FAULTS.md"
_HEAD: Final = (
    "A scenario names them in `[[faults]]`, `[schedule]`, `[[sequences]]` or `[[phases]]`"
    " (`scenarios/`, `chaos/scenario/schedule.py`). Each chooses its targets and looks at them"
    " before it touches anything, is injected, observed, healed, and observed to be healed. A fault"
    " counts as taken only where its probe saw the effect; where the probe could not look, its"
    " effect is unknown. In a schedule a fault waits while it would leave a group without an"
    " untouched majority, unless `beyond_majority = true`; those marked * may do that by"
    " themselves.",
    "",
    "The parameters are shown with their defaults, and with their other choices where there are"
    " some. Needs: what a world must have of a system and of its links (`chaos/systems/base.py`,"
    " `chaos/links/base.py`); `ledgermq chaos worlds` lists the worlds. A world has an older"
    " release where `--set release=COMMIT, TAG OR FOLDER` says which.",
    "",
    "[FAULT_DRILL](FAULT_DRILL.md) has a run of each on a live cluster: whether and when its effect"
    " was seen and gone again, and in which words.",
    "",
)


def page() -> str:
    """Return the text of the page."""
    made = f"What the laboratory can break: {len(CATALOGUE)} faults. Made by `{_COMMAND}`."
    parts = ["# Faults", "", made, "", *_HEAD]
    left = dict(CATALOGUE)
    for title, room in _CLASSES:
        specs = [spec for spec in left.values() if _room_of(spec) == room.__name__]
        for spec in specs:
            del left[spec.name]
        parts.append(_section(title, specs))
    if left:
        parts.append(_section("Others", left.values()))
    return "\n".join(parts)


def _room_of(spec: FaultSpec) -> str:
    """Return the room whose module lists the row."""
    for name, module in sys.modules.items():
        if name.startswith("chaos.nemesis.") and spec in getattr(module, "SPECS", ()):
            return name.rpartition(".")[0]
    return ""


def _section(title: str, specs: Iterable[FaultSpec]) -> str:
    lines = [
        f"## {title}",
        "",
        "| fault | what it does | how it is seen | parameters | worlds | needs | who else has it |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| "
        + " | ".join(
            (
                f"`{spec.name}`{'*' if spec.beyond_majority else ''}",
                spec.summary,
                spec.probe,
                _parameters(spec),
                ", ".join(worlds_of(spec.parts, spec.effects)) or "none",
                spec.needs,
                spec.seen_elsewhere,
            )
        )
        + " |"
        for spec in specs
    ]
    return "\n".join([*lines, ""])


def _parameters(spec: FaultSpec) -> str:
    texts = []
    for name, value in spec.parameters.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        others = [each for each in spec.choices.get(name, ()) if each != value]
        texts.append(f"`{name}` = {shown}" + (f" ({', '.join(others)})" if others else ""))
    return "; ".join(texts)


if __name__ == "__main__":
    sys.stdout.write(page())
