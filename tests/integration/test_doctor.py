"""`ledgermq doctor` says which way this machine fsyncs a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq import doctor


@pytest.mark.parametrize(
    ("refusal", "sign", "text"),
    [
        (None, "ok  ", "by the kernel beside the event loop"),
        ("io_setup: no", "note", "by a thread in stores here, which takes longer: io_setup: no"),
    ],
)
def test_the_way_of_fsyncs_is_named(
    refusal: str | None,
    sign: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried: list[Path] = []

    def told(path: Path) -> str | None:
        tried.append(path.parent)
        return refusal

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "refusal_of_kernel_aio", told)
    assert doctor.examine("fsync"), "neither way is an error"
    assert capsys.readouterr().out.startswith(f"{sign} fsync: {text}")
    assert tried == [tmp_path], "where a store would be"
    assert list(tmp_path.iterdir()) == [], "it changes nothing"


def test_a_finding_that_there_is_not_is_no_pass() -> None:
    with pytest.raises(doctor.UnknownFindingError, match="'nothing' is none of Python, Java"):
        doctor.examine("nothing")


def test_where_no_file_can_be_made_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: Path) -> str | None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "refusal_of_kernel_aio", refused)
    assert not doctor.examine("fsync")
    assert "LACK fsync: no file can be made here" in capsys.readouterr().out
