"""What rules say of histories of a few operations: what is legal, and what is not beside it."""

from __future__ import annotations

from pathlib import Path

from tests.verify.by_hand import GROUP, bare, judged_by, op, owned, queue, send, show
from tests.verify.synthetic import SyntheticRun
from verify.verdict import Outcome

BROADCAST = GROUP | {"kind": "broadcast"}


def _takes(run: SyntheticRun, at: float, client: str, outcome: str = "ok", **columns: str) -> None:
    """A member takes the queue, and is still there behind the drain's end."""
    ended = at + 0.001 if outcome == "ok" else None
    told = {"client": client, "type": outcome, "broker_group": None} | columns
    op(run, "assign", at, ended, **told, assigned=owned())
    op(run, "fetch_offset", 201, 202, client=client, topic="Orders", queue=0, **columns)


def test_who_may_have_taken_a_queue_is_owed_nothing(tmp_path: Path) -> None:
    """Nor does it hide what is owed to another member."""
    run = bare(queues=[queue(1)], consumer_groups={"g": BROADCAST})
    _takes(run, 1, "unsure", "info")
    _takes(run, 1, "sure")
    send(run, 90, "v0", 0)
    show(run, "deliver", 92, "v0", 0, client="other")
    found = judged_by("C5", run, tmp_path)
    assert found.verdict is Outcome.FAIL, found.reason
    assert [witness["client"] for witness in found.witnesses] == ["sure"]


def test_a_member_of_two_groups_takes_a_queue_for_each(tmp_path: Path) -> None:
    run = bare(queues=[queue(1)], consumer_groups={"g": BROADCAST, "late": BROADCAST})
    _takes(run, 1, "both")
    _takes(run, 90, "both", client_group="late")
    send(run, 50, "v0", 0)
    show(run, "deliver", 52, "v0", 0, client="other")
    (witness,) = judged_by("C5", run, tmp_path).witnesses
    assert (witness["client_group"], witness["client"]) == ("g", "both")
