"""What clients log during a run is in its file, and not on the console."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from chaos.experiment.laboratory_log import LABORATORY_LOG, laboratory_log


def test_warnings_go_to_the_file_while_the_run_lasts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("client.some")
    with laboratory_log(tmp_path):
        assert not (tmp_path / LABORATORY_LOG).exists(), "nothing was logged yet"
        log.error("a listener failed", exc_info=ValueError("of an application"))
        log.info("nobody wants to know")
    log.error("after the run")
    text = (tmp_path / LABORATORY_LOG).read_text()
    assert "a listener failed" in text
    assert "ValueError: of an application" in text
    assert "nobody wants to know" not in text
    assert "after the run" not in text
    assert "a listener failed" not in capsys.readouterr().err
