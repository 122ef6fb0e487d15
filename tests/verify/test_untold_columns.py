"""Columns that the format lets a run leave untold: what a rule can't know is no violation, and what
it can know all the same still is one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.by_hand import AT, GROUP, bare, judged_by, message, op
from tests.verify.synthetic import TOPIC
from verify.verdict import Outcome

OTHER = "broker-b"


@pytest.mark.parametrize(
    ("told", "shown", "expected"),
    [
        (None, (AT, OTHER), Outcome.PASS),
        (None, (AT, AT), Outcome.FAIL),
        (None, (None, None), Outcome.PASS),
        (AT, (None, None), Outcome.FAIL),
    ],
)
def test_the_messages_of_a_delivery_tell_its_queue(
    told: str | None, shown: tuple[str | None, str | None], expected: Outcome, tmp_path: Path
) -> None:
    run = bare(consumer_groups={"g": GROUP | {"exclusive": True}})
    for number, group in enumerate(shown):
        messages = [message(f"v{number}", 0, broker_group=group)]
        place = {"broker_group": told, "topic": TOPIC, "queue": 0}
        op(run, "deliver", 5 + number, 7 + number, client=f"c{number}", messages=messages, **place)
    assert judged_by("C3", run, tmp_path).verdict is expected
