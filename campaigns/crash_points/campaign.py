"""Two crashes of one node's store, at every pair of disk operations, in every way to die.

    python -m campaigns.crash_points.campaign [--seeds A..B] [--one-in N] [--of raft|ha]
        [--output FILE]

Runs every script of `store_scripts`, and one for each seed, over the real store (`exploration`). A
drawn script's first crash lives on only every so often: the pairs of the written ones are tried
all. Each written script runs a second time, and every other drawn one runs, with the kernel
carrying out what wants the log alone (`StoreLife`). The store of a master or slave has scripts of
its own (`ha_life`). Not part of `make test` (an hour of processor
time); `make crash-points` runs it on both cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from campaigns.crash_points.exploration import Exploration, explore
from campaigns.crash_points.ha_life import HA_SCRIPTS, drawn_ha_script
from campaigns.crash_points.store_scripts import SCRIPTS, Script, drawn_script

DRAWN_ONE_IN = 20


_Task = tuple[Script, int, bool, bool]  # with the kernel's fsyncs; of a master or slave


def _run(
    script: Script, one_in: int, in_kernel: bool, is_ha: bool
) -> tuple[str, Exploration, float]:
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        done = explore(script, Path(directory), one_in=one_in, in_kernel=in_kernel, is_ha=is_ha)
    return (
        f"{script.name}, in the kernel" if in_kernel else script.name,
        done,
        time.process_time() - began,
    )


def campaign(tasks: list[_Task], jobs: int) -> dict[str, object]:
    total, cpu_s, rows = Exploration(), 0.0, []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        for future in as_completed([pool.submit(_run, *task) for task in tasks]):
            name, done, took_s = future.result()
            total.add(done)
            cpu_s += took_s
            rows.append({"script": name, "starts": done.starts, "findings": len(done.findings)})
            print(
                f"{len(rows)} of {len(tasks)}: {name}: {done.operations} operations, "
                f"{done.combinations} pairs of crashes, {done.starts} starts, "
                f"{len(done.findings)} findings, {took_s:.0f} s",
                flush=True,
            )
            for finding in done.findings:
                print(f"  {finding}", flush=True)
    return {
        "scripts": len(tasks),
        "operations": total.operations,
        "pairs_of_crashes": total.combinations,
        "starts_of_images_that_differ": total.starts,
        "starts_by_way_to_die": dict(sorted(total.kinds.items())),
        "actions": dict(sorted(total.actions.items())),
        "promises_broken": sum("BrokenPromiseError" in one for one in total.findings),
        "starts_refused": sum("CorruptLogError" in one for one in total.findings),
        "findings": total.findings,
        "processor_s": round(cpu_s, 1),
        "by_script": sorted(rows, key=lambda row: str(row["script"])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="crash a store twice, everywhere")
    parser.add_argument("--seeds", default="1..100", help="of drawn scripts, both included")
    parser.add_argument("--one-in", type=int, default=1, help="first crashes that live on")
    parser.add_argument("--of", choices=("all", "raft", "ha"), default="all", help="whose store")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(".."))
    seeds = range(first, last + 1)
    one_in = max(DRAWN_ONE_IN, options.one_in)
    tasks: list[_Task] = []
    if options.of in {"all", "raft"}:
        tasks += [(script, options.one_in, False, False) for script in SCRIPTS]
        tasks += [(script, 2 * options.one_in, True, False) for script in SCRIPTS]
        tasks += [(drawn_script(seed), one_in, seed % 2 == 0, False) for seed in seeds]
    if options.of in {"all", "ha"}:
        tasks += [(script, options.one_in, False, True) for script in HA_SCRIPTS]
        tasks += [(drawn_ha_script(seed), one_in, False, True) for seed in seeds]
    result = campaign(tasks, options.jobs)
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"{result['pairs_of_crashes']} pairs of crashes, "
        f"{result['starts_of_images_that_differ']} starts: {result['promises_broken']} promises "
        f"broken, {result['starts_refused']} starts refused"
    )
    return 1 if result["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
