"""One mutant over many seeds, in a process that imports nothing else.

    python -m campaigns.mutants.worker NAME|--clean --seeds A..B | --replay SEED

Place in the data path: `campaign` starts one per mutant. It plants the patches before the
simulator is imported, runs seed after seed until one fails, and prints one line of JSON. A seed
that uses CPU time without end is ended, and counts as seen: "hang".
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from types import FrameType

from campaigns.mutants.catalogue import MUTANTS
from campaigns.mutants.source_patch import plant

__all__ = ["run_mutant"]

# The longest seeds of the clean system take a minute where the processor is shared.
_SEED_CPU_S_MAX = 600.0


class _SeedHangs(BaseException):
    """A BaseException, so that no handler on the way keeps it."""


def run_mutant(name: str | None, seeds: range) -> dict[str, object]:
    """The first seed that fails, and by which check. The process is spoilt for anything else.

    None is no mutant: the system as it is, on seeds of all kinds.
    """
    patches = () if name is None else MUTANTS[name].patches
    kind = None if name is None else MUTANTS[name].kind
    plant(patches)
    from chaos.sim.campaign.campaign import run_seed

    absent = [patch.module for patch in patches if patch.module not in sys.modules]
    assert not absent, f"{name}: the simulator does not use {absent}"
    signal.signal(signal.SIGVTALRM, _on_alarm)
    began_s = time.monotonic()
    found: dict[str, object] = {"killed": False, "seeds": len(seeds)}
    for count, seed in enumerate(seeds, start=1):
        signal.setitimer(signal.ITIMER_VIRTUAL, _SEED_CPU_S_MAX)
        try:
            failure, _ = run_seed(seed, None, kind=kind)
        except _SeedHangs:
            found = {"rule": "hang", "detail": f"{_SEED_CPU_S_MAX:.0f} s of CPU time"}
        else:
            if failure is None:
                continue
            found = {"rule": failure.rule, "detail": failure.detail}
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        found |= {"killed": True, "seeds": count, "seed": seed}
        break
    return {"name": name, **found, "took_s": round(time.monotonic() - began_s, 1)}


def _replay(name: str | None, seed: int) -> int:
    plant(() if name is None else MUTANTS[name].patches)
    from chaos.sim.campaign.command import sim_command

    return sim_command(replay_seed=seed, kind=None if name is None else MUTANTS[name].kind)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise _SeedHangs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", choices=list(MUTANTS))
    which.add_argument("--clean", action="store_true")
    parser.add_argument("--seeds", default="1..2000")
    parser.add_argument("--replay", type=int, help="one seed, told step by step")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        sys.exit(_replay(arguments.name, arguments.replay))
    first, _, last = arguments.seeds.partition("..")
    outcome = run_mutant(arguments.name, range(int(first), int(last) + 1))
    sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
