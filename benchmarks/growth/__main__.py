"""How costs grow with what a broker group holds: one kind of thing at a time, the rest as it is.

    python -m benchmarks.growth [--kinds topics,timers] [--counts-max N] [--output FILE]

Each kind has a group of three brokers of its own, which is filled with ten times as many things
again and again, and measured after each fill (`costs`). Name servers are measured by themselves
(`name_server`). Printed are the figures and, for each cost, the slope of its logarithm over that of
the count between the smallest and the largest size: 0 means that it doesn't grow, 1 that it grows
as the count does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from benchmarks.growth.costs import Group
from benchmarks.growth.name_server import name_server_rows
from benchmarks.growth.things import KINDS, Kind, filler
from chaos.cluster import cluster

_NAME_SERVER = "registered brokers"


async def grow(directory: Path, kind: Kind, counts_max: int) -> list[dict[str, float]]:
    """Fill the group in `directory` size by size, and return the figures of each."""
    group = Group(directory)
    rows: list[dict[str, float]] = []
    there = 0
    for count in kind.counts:
        if count > counts_max:
            break
        async with filler(group.leader_address, there) as fill:
            await kind.fill(fill, count)
            rows.append({"count": count, **(await group.costs()).row()})
        there = count if kind.lasts else 0
        print(json.dumps(rows[-1]), flush=True)
    return rows


def slopes(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the slope of each cost, of its logarithm over that of the count."""
    first, last = rows[0], rows[-1]
    wide = math.log(last["count"] / first["count"]) if len(rows) > 1 else 0.0
    return {
        name: round(math.log(last[name] / first[name]) / wide, 2)
        for name in first
        if name != "count" and wide and min(first[name], last[name]) > 0
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join([*KINDS, _NAME_SERVER]))
    parser.add_argument("--counts-max", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    names = arguments.kinds.split(",")
    for name in names:
        if name != _NAME_SERVER and name not in KINDS:
            parser.error(f"--kinds: {name!r} is none of {', '.join([*KINDS, _NAME_SERVER])}")
    figures: dict[str, object] = {"cores": os.cpu_count(), "python": platform.python_version()}
    for name in names:
        print(f"{name}:", flush=True)
        if name == _NAME_SERVER:
            rows = name_server_rows(arguments.counts_max)
        else:
            with tempfile.TemporaryDirectory(dir=".", prefix="growth-") as folder:
                directory = Path(folder)
                cluster.up(
                    directory, base_port=0, namesrv_port=0, detach=True, report=lambda _: None
                )
                try:
                    rows = uvloop.run(grow(directory, KINDS[name], arguments.counts_max))
                finally:
                    cluster.down(directory)
        figures[name] = {"rows": rows, "slopes": slopes(rows)}
        print(json.dumps(slopes(rows)), flush=True)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
