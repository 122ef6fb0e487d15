"""Which lines of functions were executed, and which were not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from campaigns.reach import LineTracer, unreached

MODULE = '''"""A module."""

LIMIT = 3


class Box:
    size = 1

    def put(self, number):
        if number > LIMIT:
            raise ValueError(
                number
            )
        return [one for one in range(number)]


def never():
    return 1
'''


def test_lines_that_no_call_came_to_are_left(tmp_path: Path) -> None:
    file = tmp_path / "box.py"
    file.write_text(MODULE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("box_of_reach", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    tracer, before = LineTracer([tmp_path]), sys.gettrace()
    sys.settrace(tracer)
    try:
        spec.loader.exec_module(module)
        assert module.Box().put(2) == [0, 1]
        assert module.Box().put(1) == [0]
    finally:
        sys.settrace(before)
    left, count = unreached(file, tracer.executed[str(file)])
    texts = MODULE.splitlines()
    assert [texts[line - 1].strip() for line in left] == ["raise ValueError(", "number", "return 1"]
    assert count == 5


def test_other_folders_are_not_traced(tmp_path: Path) -> None:
    tracer = LineTracer([tmp_path])
    assert tracer(sys._getframe(), "call", None) is None
    assert tracer.executed == {}
