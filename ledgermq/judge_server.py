"""`python -m ledgermq.judge_server`: judges runs by both engines, with one Spark for all of them.

Place in the data path: `chaos.campaign.commands` starts it for the runs of a campaign that Spark is
to confirm. Its commands are `verify RUN --engine both` and `report RUN`, of `ledgermq`; the exit
codes are theirs, too.

Invariant: commands are executed one after the other in this process, which is what keeps Spark's
session; a command that ends it badly costs the session, never the next run's verdict.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chaos.campaign.fork_server import serve_here
from ledgermq.exit_codes import EXIT_USAGE
from ledgermq.laboratory import write_report
from verify.run import load_rules
from verify.run import main as verify
from verify.spark.shared_session import SharedSession

__all__: list[str] = []


def _serve() -> None:
    rules = load_rules()
    with SharedSession() as sessions:

        def run_command() -> int:
            match sys.argv[1:]:
                case ["verify", run, "--engine", "both"]:
                    return verify(
                        Path(run),
                        engine="both",
                        master=None,
                        rules=rules,
                        as_json=False,
                        sessions=sessions,
                    )
                case ["report", run]:
                    return write_report(Path(run), Path(run) / "report.html")
                case words:
                    sys.stderr.write(f"ledgermq: {' '.join(words)} is not judging\n")
                    return EXIT_USAGE

        serve_here(run_command)


if __name__ == "__main__":
    _serve()
