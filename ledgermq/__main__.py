"""`ledgermq`: the one command.

Exit codes: 0 pass, 1 fail, 2 unknown or an error while running, 64 a wrong command line or a file
named on it, 70 an error of ledgermq itself, 130 interrupted. 1 means a verdict and nothing else:
any unforeseen error ends with its traceback and 70. Results go to stdout, progress and errors to
stderr. Commands import what they need when they run, so that a broker's start does not wait for
Spark's modules.

Source of 64 and 70: BSD sysexits(3), EX_USAGE and EX_SOFTWARE.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import traceback
from types import TracebackType

from chaos.cluster.parent_death import die_with_parent
from ledgermq.exit_codes import (
    EXIT_BROKEN_PIPE,
    EXIT_ERROR,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
)

__all__ = ["main"]

_USAGE_ERROR = 2  # the command-line library's code for a wrong command line


def main() -> None:
    """Run the command; console entry point, which always ends with SystemExit."""
    if not __debug__:
        sys.stderr.write(
            "ledgermq: refusing to run under python -O: its assertions guard stored data\n"
        )
        raise SystemExit(EXIT_ERROR)
    with _ProcessEdge():
        die_with_parent()
        _heed_interrupts()
        code = _run_command()
        sys.stdout.flush()  # here, where the error of a closed reader can still be recognised
        raise SystemExit(code)


def _run_command() -> int:
    from typer.exceptions import Abort, Exit, TyperException  # noqa: PLC0415 - after the check
    from typer.main import get_command  # noqa: PLC0415

    from ledgermq.cli import app  # noqa: PLC0415

    command = get_command(app)
    try:
        # Not `command.main`: that ends with code 1 if the reader of our output has gone.
        with command.make_context("ledgermq", sys.argv[1:]) as context:
            code = command.invoke(context)
    except Exit as stop:
        return stop.exit_code
    except (Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except TyperException as error:
        text = error.format_message()  # empty if the help was shown instead
        sys.stderr.write(f"ledgermq: {text}\n" if text else "")
        wrong_line = getattr(error, "exit_code", 1) == _USAGE_ERROR
        return EXIT_USAGE if wrong_line else EXIT_ERROR
    return code if isinstance(code, int) else 0


def _heed_interrupts() -> None:
    """Let SIGINT end the command even if the parent process ignores it (`stop_signals`)."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _ProcessEdge:
    """Turns every unhandled exception into exit code 70, with its traceback.

    Python's own code for it is 1, which here is a verdict. If the reader of our output has gone
    (`ledgermq tail | head`), that is no error of ours and ends the command as SIGPIPE would.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        if error is None or (isinstance(error, SystemExit) and isinstance(error.code, int)):
            return
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(EXIT_INTERRUPTED) from None
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            raise SystemExit(EXIT_BROKEN_PIPE) from None
        traceback.print_exception(error)
        sys.stderr.write("ledgermq: this is an error of ledgermq itself; nothing is proven by it\n")
        raise SystemExit(EXIT_INTERNAL) from None


def _nobody_reads() -> bool:
    """Return whether standard output has lost its reader; if so, redirect it to /dev/null."""
    try:
        output = sys.stdout.fileno()
    except io.UnsupportedOperation:  # not a file: it is captured within this process
        return False
    poll = select.poll()
    poll.register(output, 0)  # POLLERR is reported even without being requested
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


if __name__ == "__main__":
    main()
