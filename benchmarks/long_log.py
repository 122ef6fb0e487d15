"""The cost of a start on a long log: the time to open it, and the memory that its index takes.

    python -m benchmarks.long_log DIR [--gigabytes 10] [--messages-per-entry 64] [--keep]

Writes a log as a broker does (an entry is a batch of records of 1 KiB, a sync per 16 entries), in
a child process that is killed with SIGKILL in the middle of its last appends. Then opens the log in
fresh processes, with its pages dropped from the page cache: after the kill, after a clean stop,
after the loss of the sidecars (every segment is walked), and reads it at random places. Prints one
line each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind

_RECORD_SIZE_BYTES = 1024
_ENTRIES_PER_SYNC = 16


def write(directory: Path, size_bytes: int, messages_per_entry: int) -> None:
    """Append until the log has its size, then keep appending until this process is killed."""
    log = SegmentLog(OsDisk(directory), "commitlog")
    records = random.Random(1).randbytes(_RECORD_SIZE_BYTES * messages_per_entry)
    reported = False
    while True:
        first = log.last_index + 1
        log.append(
            [
                Entry(index=index, term=1 + index // 50_000, kind=EntryKind.DATA, payload=records)
                for index in range(first, first + _ENTRIES_PER_SYNC)
            ]
        )
        log.sync()
        if log.end_position >= size_bytes and not reported:
            reported = True
            sys.stdout.write("long enough\n")
            sys.stdout.flush()


def measure(directory: Path, reads: int) -> None:
    """Open the log, read at random places, close it; print what it took."""
    drop_page_cache(directory)
    before_bytes = rss_bytes()
    began = time.perf_counter()
    log = SegmentLog(OsDisk(directory), "commitlog")
    opened = time.perf_counter() - began
    opened_bytes = rss_bytes() - before_bytes
    rng = random.Random(2)
    began = time.perf_counter()
    for _ in range(reads):
        index = rng.randrange(log.first_index, log.last_index + 1)
        log.read(log.position(index) + HEADER_SIZE, _RECORD_SIZE_BYTES)
    read = time.perf_counter() - began
    found = log.recovery
    found_now = {
        "open_s": round(opened, 3),
        "rss_for_it_mib": round(opened_bytes / 2**20, 1),
        "rss_after_reads_mib": round((rss_bytes() - before_bytes) / 2**20, 1),
        "rss_max_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "random_read_us": round(read / reads * 1e6, 1) if reads else None,
        "entries": found.entries,
        "gigabytes": round(found.bytes / 1e9, 2),
        "segments": found.segments,
        "segments_scanned": found.segments_scanned,
        "torn_bytes": found.torn_bytes,
    }
    log.close()
    sys.stdout.write(json.dumps(found_now) + "\n")


def rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def drop_page_cache(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def child(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.long_log", *arguments]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--messages-per-entry", type=int, default=64)
    parser.add_argument("--keep", action="store_true", help="leave the log where it is")
    parser.add_argument("--part", choices=["write", "measure"], help=argparse.SUPPRESS)
    parser.add_argument("--reads", type=int, default=2000, help=argparse.SUPPRESS)
    options = parser.parse_args()
    store = options.directory / "long-log"
    size_bytes = int(options.gigabytes * 1e9)
    if options.part == "write":
        write(store, size_bytes, options.messages_per_entry)
        return
    if options.part == "measure":
        measure(store, options.reads)
        return
    room = shutil.disk_usage(options.directory).free
    if room < 2 * size_bytes:
        sys.exit(f"{room / 1e9:.0f} GB are free, twice the log's size is wanted")
    store.mkdir(parents=True, exist_ok=True)
    common = (str(options.directory), "--messages-per-entry", str(options.messages_per_entry))
    began = time.perf_counter()
    with subprocess.Popen(
        child(*common, "--gigabytes", str(options.gigabytes), "--part", "write"),
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        took = time.perf_counter() - began
        writer.send_signal(signal.SIGKILL)
    sys.stdout.write(f"written in {took:.1f} s: {size_bytes / took / 1e6:.0f} MB/s\n")
    for what in ("after kill -9", "after a clean stop", "without sidecars"):
        if what == "without sidecars":
            for path in (store / "commitlog").glob("*.index"):
                path.unlink()
        sys.stdout.write(f"{what}: ")
        sys.stdout.flush()
        subprocess.run(child(*common, "--part", "measure"), check=True)
    if not options.keep:
        shutil.rmtree(store)


if __name__ == "__main__":
    main()
