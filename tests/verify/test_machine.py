"""What bounds the memory that the engines take."""

from __future__ import annotations

import os
from pathlib import Path

from verify.engines.machine import memory_bytes

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine(root: Path, cgroup: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_max", ".max")
        path = path.with_name(path.name.replace("limit_in", "memory.limit_in"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_container_of_its_own_name_space(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", memory_max="1073741824\n")
    assert memory_bytes(root=root) == 2**30


def test_a_group_above_counts_too(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/a/b\n", a__b__memory_max="max\n", a__memory_max=f"{2**29}\n")
    assert memory_bytes(root=root) == 2**29


def test_the_older_hierarchy(tmp_path: Path) -> None:
    root = machine(tmp_path, "4:cpu:/x\n7:memory:/x\n", memory__x__limit_in_bytes=f"{2**28}\n")
    assert memory_bytes(root=root) == 2**28


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    assert memory_bytes(root=tmp_path) == PHYSICAL
    root = machine(tmp_path, "0::/\n", memory_max="max\n")
    assert memory_bytes(root=root) == PHYSICAL
