"""Values of thousands of characters, which any producer may send, are compared in little time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LONG_TEXTS = """
import resource
from broker.queues.sql import filter_of
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
for text in ("1" * 32_000, "1" * 32_000 + "x", "." * 32_000, "1." * 16_000, "1e" * 16_000,
             "0x" + "a" * 32_000, "0x" + "a" * 32_000 + "p", " " * 32_000 + "x", "-" * 32_000):
    for expression in ("a > 1.5", "a = 1", "a = 1.5", "a BETWEEN 1 AND 2", "a NOT IN ('x')"):
        filter_of("SQL92", expression).wants({"a": text})
"""


def test_a_long_property_is_compared_in_little_time() -> None:
    """Pulls evaluate it on the event loop; a pattern that tries each way to read it takes minutes.
    A process that the kernel ends then, since nothing else could."""
    subprocess.run([sys.executable, "-c", LONG_TEXTS], check=True, cwd=ROOT)
