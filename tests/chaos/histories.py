"""What a history file says, for tests of those who write one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaos.recording.history_rows import HANDLE, HistoryRows

__all__ = ["faults_of", "ops_of"]


def ops_of(path: Path) -> list[dict[str, Any]]:
    """Rows by t_invoke."""
    rows = HistoryRows(path)
    rows.read()
    ops = [*rows.take_completed(), *rows.take_open()]
    return sorted(ops, key=lambda row: (row["t_invoke"], row[HANDLE]))


def faults_of(path: Path) -> list[dict[str, Any]]:
    rows = HistoryRows(path)
    rows.read()
    return rows.faults
