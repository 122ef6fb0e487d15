"""The clients work where nothing but `client`, `remoting` and their three packages is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, pkgutil, sys

ALLOWED = {"client", "remoting", "msgspec", "lz4", "zstandard", *sys.stdlib_module_names}

class Others:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and not top.startswith(("_msgspec", "_cffi_backend")):
            raise ImportError(f"{name} is not installed")
        return None

sys.meta_path.insert(0, Others())
for package in ("client", "remoting"):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
print("all of it")
"""


def test_nothing_else_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr
