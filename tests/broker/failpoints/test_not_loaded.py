"""A broker that nobody asked for failpoints has none: not even their modules are loaded."""

from __future__ import annotations

import json
import subprocess
import sys


def test_where_nobody_asks_for_failpoints_nothing_of_them_is_loaded():
    script = (
        "import json, sys, broker.process.server, ledgermq.cli;"
        "print(json.dumps([m for m in sys.modules if m.startswith('broker.failpoints')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.rpartition(".")[2] for name in json.loads(done.stdout)}
    assert loaded == {"failpoints", "handler", "orders"}, "the request is served, and refuses"
