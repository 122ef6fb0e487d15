"""`python -m ledgermq.fork_server`: runs `ledgermq` commands as forks of a process that has it all.

Place in the data path: `chaos.campaign.commands` starts it for the runs of the simulated world, of
which a campaign has thousands: importing the laboratory and the verifier and translating the rules
costs as much processor time as simulating ten seconds does.

Invariant: nothing that is done here beforehand starts a thread or opens a file that stays open: a
fork would have it in an unknown state. Numpy and Arrow start one each when they are imported, and
have handlers of their own for forks; DuckDB starts its threads with a connection, of which there is
none yet.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import verify.run
from chaos.campaign.fork_server import serve
from ledgermq.__main__ import main
from verify.catalogue.translated import translate

__all__: list[str] = []

_IMPORTED_LATE: Final = (  # by commands that import what they need when they run
    "chaos.experiment.experiment",
    "ledgermq.campaign_commands",
    "ledgermq.cli",
    "ledgermq.laboratory",
    "verify.export.run_export",
    "verify.report.build",
)

if __name__ == "__main__":
    for name in _IMPORTED_LATE:
        import_module(name)
    known = verify.run.load_rules()
    translate(known.rules, known.stages.values())
    serve(main)
