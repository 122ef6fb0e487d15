"""The share of the machine that this process may use: its memory, and a folder that stays.

Place in the data path: both engines bound their memory by it before they read a row; what costs
seconds at each start, and is the same each time, is held in the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["cache_folder", "memory_bytes"]


def memory_bytes(*, root: Path = Path("/")) -> int:
    """Return the memory that this process can have: the machine's, or the lowest limit of its
    control group and those above it, such as a container's.

    `root` is the folder of `proc` and `sys`. Source: cgroup-v2's memory.max, v1's limit_in_bytes.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(root)])


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return this user's folder for what can be made again; it may not exist yet.

    Raises:
        RuntimeError: the user has no home folder.
    """
    configured = environment.get("XDG_CACHE_HOME", "")
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "ledgermq"


def _limits(root: Path) -> Iterator[int]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                limit = (base / folder / name).read_text().strip()
            except OSError:
                continue  # a container sees its own group at the root, and no other
            if limit.isdecimal():  # else "max"
                yield int(limit)
