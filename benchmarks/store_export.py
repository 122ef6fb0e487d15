"""The cost of reading the replicas' stores for the verifier: rows of `log` and `cq` per second.

    python -m benchmarks.store_export RUN [--rounds 3]

Exports the stores of a run into a temporary folder, and prints one JSON object per round: rows,
seconds, and seconds of processor time in this process (which does all the work of a small run).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from verify.export.tables import export_tables
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    manifest = load_manifest(LocalFiles(arguments.run))
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory(prefix="ledgermq-export-") as folder:
            began, used = time.perf_counter(), time.process_time()
            written = export_tables(arguments.run, manifest, Path(folder))
            figures: dict[str, object] = {
                name: sum(file.rows for file in files) for name, files in written.items()
            }
            figures["seconds"] = round(time.perf_counter() - began, 3)
            figures["processor_seconds"] = round(time.process_time() - used, 3)
            print(json.dumps(figures))


if __name__ == "__main__":
    main()
