"""The holders of faults that were injected by hand: found, and asked to heal.

Place in the data path: `chaos.experiment.by_hand` starts a holder for each fault; `ledgermq cluster
down` ends them before it stops anything, so that no heal starts a broker after that.

Invariant: a holder ends once it has healed, or is killed when its time is up, which is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from chaos.cluster.processes import ProcessError, ProcessTable

__all__ = ["FAULTS_DIRECTORY", "end_faults"]

FAULTS_DIRECTORY: Final = "faults"
HEAL_TIMEOUT_S: Final = 90.0


def end_faults(directory: Path) -> list[str]:
    """Ask every holder to heal its fault, and wait; return the names of the faults.

    Raises ProcessError where one does not end.
    """
    holders = directory / FAULTS_DIRECTORY
    if not (holders / "pids").is_dir():
        return []
    table = ProcessTable(holders)
    names = [name for name in table.names() if table.find(name) is not None]
    killed = table.stop(table.names(), timeout_s=HEAL_TIMEOUT_S)
    if killed:
        raise ProcessError(f"{', '.join(killed)} could not be healed in time: see {holders}")
    return names
