"""`ledgermq`: the one command.

Exit codes: 0 pass, 1 fail, 2 unknown or an error while running, 64 a wrong command line. Results go
to stdout, progress and errors to stderr. Commands import what they need when they run, so that a
broker's start does not wait for Spark's modules.
"""

from __future__ import annotations

import sys

from chaos.parent_death import die_with_parent
from ledgermq.exit_codes import EXIT_ERROR, EXIT_USAGE

__all__ = ["main"]

_USAGE_ERROR = 2  # what the command-line library calls a wrong command line


def main() -> None:
    """Console entry point."""
    if not __debug__:
        sys.stderr.write(
            "ledgermq: refusing to run under python -O: its assertions guard stored data\n"
        )
        raise SystemExit(EXIT_ERROR)
    die_with_parent()
    from typer.exceptions import Abort, Exit, TyperException  # noqa: PLC0415 - after the check
    from typer.main import get_command  # noqa: PLC0415

    from ledgermq.cli import app  # noqa: PLC0415

    try:
        code = get_command(app).main(prog_name="ledgermq", standalone_mode=False)
    except Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except (Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except TyperException as error:
        sys.stderr.write(f"ledgermq: {error.format_message()}\n")
        wrong_line = getattr(error, "exit_code", 1) == _USAGE_ERROR
        raise SystemExit(EXIT_USAGE if wrong_line else EXIT_ERROR) from None
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
