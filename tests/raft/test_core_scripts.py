"""Scripts of the core: what it does, as text; `pytest --rewrite` writes what it does now.

Whoever changes the core reads the difference: what is understood is committed, nothing else is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.core_script import ScriptError, Session, blocks_of, text_of

SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


def test_there_are_some() -> None:
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    session, blocks = Session(), blocks_of(text)
    for block in blocks:
        answer = session.run(block)
        if request.config.getoption("--rewrite"):
            block.answer = answer
        assert answer == block.answer, f"{path.name}, line {block.line}: {block.command}"
    if request.config.getoption("--rewrite"):
        path.write_text(text_of(blocks), encoding="utf-8")
    else:
        assert text == text_of(blocks), "written as --rewrite would write it"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("tick n1\n----\n", "a script begins with `group`"),
        ("group 3\n", "has no ----"),
        ("group 3\n----\nn1 n2 n3\n\nfly n1\n----\n", "there is no command 'fly'"),
        ("group 3\n----\nn1 n2 n3\n\ntick n9\n----\n", "line 5: tick n9"),
    ],
)
def test_what_can_not_be_run_is_said(script: str, said: str) -> None:
    def run() -> None:
        session = Session()
        for block in blocks_of(script):
            session.run(block)

    with pytest.raises(ScriptError, match=said):
        run()
