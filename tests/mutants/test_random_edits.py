"""Random edits of the product: each is one change, compiles, and says that it ran."""

from __future__ import annotations

import builtins
import random
import signal
from pathlib import Path

import pytest

from campaigns.mutants.random.campaign import drawn_edits, outcome_of
from campaigns.mutants.random.edits import MARK, edited, edits_of

ROOT = Path(__file__).resolve().parents[2]

TEXT = '''
LIMIT = 5


class Shelf:
    size_max: int = 7

    def put(self, item, *, count=1):
        """Nothing here is édited."""
        assert count >= 1
        if not self.is_open and item in self.items:
            raise ValueError(f"{count + 1} is too much")
        _log.info("put %s", count > 1)
        self.count += 1
        self.items[item] = True
        while self.count - 1 < LIMIT:
            self.grow(min(self.count, 3))
        return count <= 2
'''


def test_edits_are_these() -> None:
    condition, bound = "not self.is_open and item in self.items", "self.count - 1 < LIMIT"
    expected = {
        ("condition negated", condition, f"(not ({condition}))"),
        ("and, or", condition, "(not self.is_open or item in self.items)"),
        ("comparison negated", "item in self.items", "(item not in self.items)"),
        ("statement dropped", "self.count += 1", ""),
        ("constant", "1", "2"),
        ("statement dropped", "self.items[item] = True", ""),
        ("constant", "True", "False"),
        ("condition negated", bound, f"(not {bound})"),
        ("bound shifted", bound, "(self.count - 1 <= LIMIT)"),
        ("plus, minus", "self.count - 1", "(self.count + 1)"),
        ("statement dropped", "self.grow(min(self.count, 3))", ""),
        ("min, max", "min(self.count, 3)", "(max(self.count, 3))"),
        ("constant", "3", "4"),
        ("bound shifted", "count <= 2", "(count < 2)"),
        ("constant", "2", "3"),
    }
    assert {(edit.kind, edit.before, edit.after) for edit in edits_of(TEXT)} == {
        (kind, before, f"({MARK}() or {after})" if after else f"{MARK}()")
        for kind, before, after in expected
    }


def test_an_edit_says_that_it_ran_and_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(builtins, MARK, lambda: bool(ran.append("ran")), raising=False)
    text = "def f(x):\n    return x < 3 and x + 1\n"
    answers = set()
    for edit in edits_of(text):
        names: dict[str, object] = {}
        exec(edited(text, edit), names)  # our own text
        ran.clear()
        answers.add((edit.kind, names["f"](3)))  # type: ignore[operator]
        assert ran or edit.before in {"1", "x + 1"}, "f(3) does not come there"
    assert ("bound shifted", 4) in answers
    assert ("and, or", 4) in answers


def test_edits_of_the_product_compile() -> None:
    drawn = drawn_edits(1, 400)
    assert len(drawn) == 400
    assert drawn == drawn_edits(1, 400)
    for module, edit in random.Random(2).sample(drawn, 60):
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        text = edited(path.read_text(encoding="utf-8"), edit)
        assert text.count(MARK) == 1
        compile(text, str(path), "exec")


def test_an_edit_of_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2 is not"):
        edited("def f(x):\n    return y < 3\n", edits_of("def f(x):\n    return x < 3\n")[0])


@pytest.mark.parametrize(
    ("was_executed", "run_code", "verdict", "outcome"),
    [
        (True, 0, "fail", "seen"),
        (True, 0, "pass", "survived"),
        (True, 0, "unknown", "broken"),
        (True, 70, None, "broken"),
        (True, None, None, "stuck"),
        (True, -signal.SIGXCPU, None, "stuck"),
        (False, 0, "pass", "idle"),
        (False, 0, "fail", "idle"),
    ],
)
def test_outcomes(
    was_executed: bool, run_code: int | None, verdict: str | None, outcome: str
) -> None:
    assert outcome_of(was_executed=was_executed, run_code=run_code, verdict=verdict) == outcome
