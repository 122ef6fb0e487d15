"""Choice of the Python that `make venv` builds the environment with: the fastest of one version.

Place: the Makefile runs it before there is an environment, so it needs the standard library alone.
`python3` may be a build without profile-guided and link-time optimisation, as version managers make
them, beside a distribution's with both, which takes 10 to 30 % less processor time for the same
work. How a Python was built is not to be read from it (Debian's hides it), so a loop is timed.

Invariants: all candidates have the version (major, minor) of the running one, so that the lock file
fits; another is chosen only where it takes at least a tenth less time. It may be an older bugfix
release: a distribution puts security fixes into the one that it began with.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["candidates", "fastest", "main", "times_s"]

FOLDERS = ("/usr/bin", "/usr/local/bin")
ROUNDS = 15
GAIN_MIN = 0.1
LOOP = """
import ensurepip, time, venv
begun = time.process_time()
counts = {}
for number in range(200_000):
    key = number % 1000
    counts[key] = counts.get(key, 0) + len(str(number))
print(time.process_time() - begun)
"""


def candidates(running: str, folders: tuple[str, ...] = FOLDERS) -> list[str]:
    """Return the running interpreter and those of its version in `folders`, each file once."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = {Path(running).resolve(): running}
    for folder in folders:
        path = Path(folder, name)
        if path.is_file():
            found.setdefault(path.resolve(), str(path))
    return list(found.values())


def times_s(pythons: list[str], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median processor time of a loop by each interpreter, one after the other in each
    round: on a busy machine the least is a matter of luck. One that can't make environments, or
    doesn't run, is left out."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for python in pythons:
            done = subprocess.run(
                [python, "-I", "-c", LOOP], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                times.setdefault(python, []).append(float(done.stdout))
    return {python: statistics.median(taken) for python, taken in times.items()}


def fastest(running: str, times: Mapping[str, float]) -> str:
    """Return the fastest interpreter, or `running` where none takes a tenth less than it does."""
    if running not in times:
        return min(times, key=lambda python: times[python], default=running)
    best = min(times, key=lambda python: times[python])
    return best if times[best] <= times[running] * (1 - GAIN_MIN) else running


def main() -> int:
    """Print the path of the Python to use; a choice that may surprise is explained on stderr."""
    running = sys.executable
    pythons = candidates(running)
    chosen = running
    if len(pythons) > 1:
        times = times_s(pythons)
        chosen = fastest(running, times)
        if chosen != running and running in times:
            saved = 1 - times[chosen] / times[running]
            print(
                f"{chosen} takes {saved:.0%} less time than {running} and is used; "
                "PYTHON=... chooses another",
                file=sys.stderr,
            )
    print(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
