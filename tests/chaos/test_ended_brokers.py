"""Brokers that ended by an error of their own, as their outputs tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.experiment.ended_brokers import ended_by_mistake
from tests.chaos.nemesis.fakes import FakeWorld


@pytest.mark.parametrize(
    ("words", "is_mistake"),
    [
        ("ended: KeyError: 1700000005612\n", True),
        ("ended: AssertionError: it holds\n", True),
        ("ended: ValueError: list.remove(x): x not in list\n", True),
        ("ended: OSError: [Errno 28] No space left on device\n", False),
        ("ended: DiskFailedError: the disk failed\n", False),
        ("ended: KeyError: 1\nended: OSError: the last one counts\n", False),
        ("listening on 127.0.0.1:1\n", False),
    ],
)
def test_only_a_mistake_in_the_code_counts(tmp_path: Path, words: str, is_mistake: bool) -> None:
    system = FakeWorld()
    place = system.layout.brokers[0]
    output = tmp_path / "output" / f"{place.name}.log"
    output.parent.mkdir(exist_ok=True)
    output.write_text(words, encoding="utf-8")
    assert ended_by_mistake(system, tmp_path) == []  # it runs
    system.states[place.name] = "gone"
    found = [(each.name, text) for each, text in ended_by_mistake(system, tmp_path)]
    assert found == ([(place.name, words.strip().removeprefix("ended: "))] if is_mistake else [])


def test_without_output_nothing_is_known(tmp_path: Path) -> None:
    system = FakeWorld()
    system.states[system.layout.brokers[0].name] = "gone"
    assert ended_by_mistake(system, tmp_path) == []
