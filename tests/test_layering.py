"""Dependencies run one way (docs/ARCHITECTURE.md): read from the imports of every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("raft", "remoting", "broker", "namesrv", "client", "chaos", "verify", "ledgermq")
ALLOWED = {
    "raft": set(),
    "remoting": set(),
    "broker": {"raft", "remoting"},
    "namesrv": {"remoting"},
    "client": {"remoting"},
    "chaos": {"raft", "remoting", "broker", "namesrv", "client"},
    "verify": set(),
    "ledgermq": {"raft", "remoting", "broker", "namesrv", "client", "chaos", "verify"},
}
# Pure modules: no clock, randomness of their own, socket, file or event loop.
PURE = (
    "raft/core.py",
    "raft/raft_log.py",
    "raft/progress.py",
    "raft/quorum.py",
    "raft/messages.py",
    "raft/events.py",
    "raft/wire.py",
    "remoting/frame.py",
    "remoting/message.py",
    "remoting/properties.py",
    "namesrv/route_table.py",
    "broker/state.py",
    "broker/dedupe.py",
    "broker/topics.py",
    "broker/long_polling.py",
    "broker/store/payload.py",
    "broker/store/record.py",
    "broker/transaction/half_table.py",
    "client/rebalance.py",
    "client/retry.py",
    "client/process_queue.py",
    "client/queue_choice.py",
    "client/latency_faults.py",
    "client/namespace.py",
    "client/pop_codec.py",
    "client/trace_codec.py",
    "client/send_trace.py",
)
IMPURE_IMPORTS = {"time", "datetime", "asyncio", "os", "pathlib", "secrets", "threading", "uuid"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names that a module imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_stands_below_it(package):
    found = modules(package)
    assert found, f"{package} has no modules"
    for path in found:
        wrong = (imported(path) & set(PACKAGES)) - ALLOWED[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_do_no_io(name):
    wrong = imported(ROOT / name) & IMPURE_IMPORTS
    assert not wrong, f"{name} imports {sorted(wrong)}"


def test_the_rule_can_say_no(tmp_path):
    module = tmp_path / "bad.py"
    module.write_text("def f():\n    from chaos import history\n    import time\n")
    assert imported(module) == {"chaos", "time"}
