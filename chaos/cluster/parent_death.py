"""A process that ends with its parent, even where that one is killed by SIGKILL.

Place in the data path: `chaos.cluster.processes` marks the environment of a process that must not
outlive its parent (`environment_of`); `ledgermq.__main__` calls `die_with_parent` before anything
else. A program that is not ours is started through `python -m chaos.cluster.parent_death PROGRAM
ARGUMENTS`, which becomes it and hands the request on. Clusters that were started detached are not
marked: they live on by themselves.

The kernel sends the signal (PR_SET_PDEATHSIG), so that a stopped process (SIGSTOP) ends as well,
which no code of its own could bring about. The signal follows the death of the *thread* that
started the process: start marked processes in a thread that lives for as long as they shall.

Invariant: a marked process never goes on under another parent: where its parent died before the
signal was requested, it ends at once.

Source: prctl(2), PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["VARIABLE", "die_with_parent", "end_with_parent", "environment_of"]

VARIABLE: Final = "LEDGERMQ_DIES_WITH"
_PR_SET_PDEATHSIG: Final = 1


def environment_of(environment: Mapping[str, str], *, parent: int | None) -> dict[str, str]:
    """Return `environment` for a child that dies with `parent`; None: one that lives on."""
    child = {name: value for name, value in environment.items() if name != VARIABLE}
    return child if parent is None else child | {VARIABLE: str(parent)}


def die_with_parent() -> None:
    """Request SIGKILL at the parent's death from the kernel, where the environment is marked.

    The mark is removed from the environment: it holds for this process alone. Raises OSError where
    the kernel refuses.
    """
    parent = os.environ.pop(VARIABLE, "")
    if parent:
        end_with_parent(int(parent))


def end_with_parent(parent: int) -> None:
    """Request SIGKILL at the death of `parent`, which started this process, from the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != parent:  # it died before the request
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    # The kernel keeps the request for the program that this process becomes.
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 (no shell is needed)
