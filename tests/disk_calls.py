"""Records in which order files are made durable and get their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class DiskCalls:
    """The fsyncs and renames of this process from construction on, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Path]] = []
        fsync, replace, rename = os.fsync, os.replace, os.rename

        def recorded_fsync(descriptor: int) -> None:
            fsync(descriptor)
            self.calls.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))

        def recorded_replace(source: Path, target: Path) -> None:
            replace(source, target)
            self.calls.append(("name", Path(target).resolve()))

        def recorded_rename(source: Path, target: Path) -> None:
            rename(source, target)
            self.calls.append(("name", Path(target).resolve()))

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "replace", recorded_replace)
        monkeypatch.setattr(os, "rename", recorded_rename)

    def synced_before_named(self, target: Path) -> set[Path]:
        """Everything that was made durable before `target` got its name."""
        calls = self.calls[: self.calls.index(("name", target.resolve()))]
        return {path for call, path in calls if call == "sync"}

    def is_name_durable(self, target: Path) -> bool:
        """Whether the folder was made durable after `target` got its name in it."""
        after = self.calls[self.calls.index(("name", target.resolve())) :]
        return ("sync", target.resolve().parent) in after


def with_folders(files: set[Path], *, below: Path) -> set[Path]:
    """The files and every folder inside `below` that leads to one."""
    base = below.resolve()
    resolved = {path.resolve() for path in files}
    return resolved | {
        folder for path in resolved for folder in path.parents if base in folder.parents
    }
