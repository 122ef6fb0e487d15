"""Translations that are remembered: the same as those made anew, and never another dialect's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from verify.catalogue import dialect, translated
from verify.catalogue.dialect import DialectError, duckdb_text, held, tables_of
from verify.catalogue.translated import remembered, translate
from verify.run import load_rules

TEXT = "select cast(a as bigint) as b from ops"
MADE = 'SELECT CAST("a" AS BIGINT) AS "b" FROM "ops"'


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = held()
    dialect._held.clear()
    yield
    dialect._held.clear()
    dialect.hold(before)


def forget_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("a text is parsed")

    monkeypatch.setattr(dialect.sqlglot, "parse", parse)


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_all_of_the_catalogue_is_as_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_rules()
    with remembered(tmp_path):
        translate(known.rules, known.stages.values())
    made = held()
    dialect._held.clear()
    forget_parser(monkeypatch)
    with remembered(tmp_path):
        translate(known.rules, known.stages.values())
        for rule in known.rules:
            assert tables_of(rule.text, name=rule.id)
    assert held() == made


def test_what_is_new_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with remembered(tmp_path / "cache"):
        assert duckdb_text(TEXT, name="q") == MADE
    dialect._held.clear()
    with remembered(tmp_path / "cache"):
        duckdb_text("select 1 from raft", name="q")
    dialect._held.clear()
    forget_parser(monkeypatch)
    with remembered(tmp_path / "cache"):
        assert duckdb_text(TEXT, name="q") == MADE
        assert tables_of("select 1 from raft", name="q") == {"raft"}


def test_what_is_refused_is_refused_again(tmp_path: Path) -> None:
    for _ in range(2):
        with remembered(tmp_path), pytest.raises(DialectError, match="rand"):
            duckdb_text("select rand() from ops", name="q")


@pytest.mark.parametrize("cut", [0, 10, 64, 65, 100, -1])
def test_damaged_file_is_not_used(tmp_path: Path, cut: int) -> None:
    with remembered(tmp_path):
        duckdb_text(TEXT, name="q")
    file = only_file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    dialect._held.clear()
    with remembered(tmp_path):
        assert held() == {}
        assert duckdb_text(TEXT, name="q") == MADE
    assert file.read_bytes() == whole


def test_changed_bytes_are_not_used(tmp_path: Path) -> None:
    with remembered(tmp_path):
        duckdb_text(TEXT, name="q")
    file = only_file(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"BIGINT", b"TINYINT"))
    dialect._held.clear()
    with remembered(tmp_path):
        assert duckdb_text(TEXT, name="q") == MADE


def test_another_dialect_has_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with remembered(tmp_path):
        duckdb_text(TEXT, name="q")
    dialect._held.clear()
    monkeypatch.setattr(translated, "version", lambda _: "another")
    with remembered(tmp_path):
        assert held() == {}


def test_folder_that_can_not_be_had_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file", Path("/dev/null")):
        with remembered(folder):
            assert duckdb_text(TEXT, name="q") == MADE


def test_what_nobody_wrote_for_a_month_goes(tmp_path: Path) -> None:
    for name in ("sql-old.json", ".sql-half", "sql-new.json", "other"):
        (tmp_path / name).touch()
    for name in ("sql-old.json", ".sql-half", "other"):
        os.utime(tmp_path / name, (0, 0))
    with remembered(tmp_path):
        duckdb_text(TEXT, name="q")
    left = {path.name for path in tmp_path.iterdir()}
    assert {"sql-new.json", "other"} < left
    assert not {"sql-old.json", ".sql-half"} & left


def test_neither_process_nor_file_holds_more_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dialect, translated):
        monkeypatch.setattr(module, "TEXTS_MAX", 5)
    for number in range(12):
        with remembered(tmp_path):
            duckdb_text(f"select {number} from ops", name="q")
        assert len(held()) <= 5
        assert len(translated._read(only_file(tmp_path))) <= 5
    dialect._held.clear()
    with remembered(tmp_path):
        assert len(held()) > 1
