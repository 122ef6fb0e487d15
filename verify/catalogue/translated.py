"""Texts of a catalogue that have been translated: before the first run is judged, or by a process
that has ended since.

Place in the data path: `verify.run` has each verification remember what was translated before, in
the file `sql-DIGEST.json` of a folder of this user; `ledgermq.fork_server` translates all texts
once, so that the processes forked from it judge without a parser.

Invariants: the file is named after the dialect's source and the parser's release, so that no other
translation is taken for today's; it is replaced at once; one that is damaged is not used, and a
folder that can't be had costs nothing but time.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from verify.catalogue import dialect
from verify.catalogue.dialect import TEXTS_MAX, Translation, duckdb_text, held, hold
from verify.catalogue.rule_files import Rule, Stage

__all__ = ["remembered", "translate"]

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_UNUSED_DAYS_MAX: Final = 30
_READER: Final = msgspec.json.Decoder(dict[str, Translation])


def translate(rules: Iterable[Rule], stages: Iterable[Stage]) -> None:
    """Translate rules, their headers and stages. Raises DialectError."""
    for rule in rules:
        for text in (rule.applies, rule.listed, rule.examined, rule.text):
            duckdb_text(text, name=rule.id)
    for stage in stages:
        duckdb_text(stage.text, name=stage.name)


@contextlib.contextmanager
def remembered(folder: Path | None) -> Iterator[None]:
    """Translate nothing within the block that the file in `folder` has; add to it what was.

    None: there is no folder.
    """
    if folder is None:
        yield
        return
    file = folder / f"sql-{_digest()}.json"
    read = _read(file)
    hold(read)
    try:
        yield
    finally:
        if not held().keys() <= read.keys():
            every = {**read, **held()}
            with contextlib.suppress(OSError):
                _write(file, every if len(every) <= TEXTS_MAX else held())


def _digest() -> str:
    source = Path(dialect.__file__).read_bytes()
    return hashlib.sha256(source + version("sqlglot").encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, Translation]:
    """Return what `file` holds; nothing if it can't be read, or is not what was written."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_FILE_BYTES_MAX)
    except OSError:
        return {}
    digest, _, text = data.partition(b"\n")
    if digest != hashlib.sha256(text).hexdigest().encode():
        return {}
    try:
        return _READER.decode(text)
    except msgspec.MsgspecError:
        return {}


def _write(file: Path, translations: dict[str, Translation]) -> None:
    """Replace `file`, and remove those that no process has written for a month. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = msgspec.json.encode(translations)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".sql-", delete=False) as made:
        try:
            made.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            made.close()
            Path(made.name).replace(file)
        except OSError:
            Path(made.name).unlink(missing_ok=True)
            raise
    for other in file.parent.glob("*sql-*"):
        with contextlib.suppress(FileNotFoundError):
            if other.stat().st_mtime < time.time() - _UNUSED_DAYS_MAX * 86_400:
                other.unlink()
