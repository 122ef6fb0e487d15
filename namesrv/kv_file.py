"""The file in which key-value configuration survives restarts, where one is configured.

Place in the data path: read when a name server starts, written whole after each change.

Invariants: the file is replaced in one step after its bytes are durable, so it always holds one
complete state; an unreadable file makes the start fail and is not overwritten.

Source: RocketMQ KVConfigManager (kvConfig.json), KVConfigSerializeWrapper.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from namesrv.kv_config import KvConfig, KvLimitError

__all__ = ["KvFileError", "NotStoredError", "StoredKv"]


class KvFileError(ValueError):
    """The file holds no key-value configuration; names it."""


class NotStoredError(Exception):
    """The change is neither on disk nor in effect; says why."""


class _Content(msgspec.Struct):
    configTable: dict[str, dict[str, str]] | None = None


class StoredKv:
    """`kv`, with each change stored in `file`; without a file it is `kv` alone.

    The constructor raises KvFileError, and OSError where the file exists and can't be read.
    """

    def __init__(self, kv: KvConfig, file: Path | None) -> None:
        self._kv = kv
        self._file = file
        if file is not None:
            _load(file, kv)

    def get(self, namespace: str, key: str) -> str | None:
        return self._kv.get(namespace, key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        return self._kv.namespace(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set an entry and store it. Raises KvLimitError and NotStoredError."""
        before = self._kv.get(namespace, key)
        self._kv.put(namespace, key, value)
        self._store_or_undo(namespace, key, before)

    def delete(self, namespace: str, key: str) -> None:
        """Delete an entry; a missing one is no error. Raises NotStoredError."""
        before = self._kv.get(namespace, key)
        if before is not None:
            self._kv.delete(namespace, key)
            self._store_or_undo(namespace, key, before)

    def _store_or_undo(self, namespace: str, key: str, before: str | None) -> None:
        if self._file is None:
            return
        try:
            _save(self._file, self._kv)
        except OSError as error:
            if before is None:
                self._kv.delete(namespace, key)
            else:
                self._kv.put(namespace, key, before)
            raise NotStoredError(f"can't write {self._file}: {error}") from error


def _load(file: Path, kv: KvConfig) -> None:
    """Load the file into `kv`; a missing file holds nothing."""
    try:
        content = msgspec.json.decode(file.read_bytes(), type=_Content)
    except FileNotFoundError:
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KvFileError(f"{file}: {error}") from error
    try:
        for namespace, entries in (content.configTable or {}).items():
            for key, value in entries.items():
                kv.put(namespace, key, value)
    except KvLimitError as error:
        raise KvFileError(f"{file}: {error}") from error


def _save(file: Path, kv: KvConfig) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("wb") as stream:
        stream.write(msgspec.json.encode({"configTable": kv.tables()}))
        stream.flush()
        os.fsync(stream.fileno())
    # Crash window: before the rename the old state stands, after it the new one.
    fresh.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
