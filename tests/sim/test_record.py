"""A campaign that goes on where it was ended, and only with the sources that it began with."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from chaos.sim.campaign import campaign, command, record
from chaos.sim.campaign.command import sim_command
from chaos.sim.campaign.record import RecordError, SeedRecord, source_digest
from chaos.sim.seed.coverage import Coverage


def _counts(**counts: int) -> dict[str, int]:
    return Coverage().counts | counts


def test_it_has_what_was_added_and_nothing_else(tmp_path: Path) -> None:
    rng, added = random.Random(5), set()
    path = tmp_path / "below" / "record.json"
    for _ in range(20):
        kept = SeedRecord(path, nodes=None, kind=None)  # each time read anew
        assert set(range(1, 60)) - set(kept.missing(range(1, 60))) == added
        assert kept.coverage["crashes"] == len(added)
        first = rng.randint(1, 55)
        seeds = [seed for seed in range(first, first + 4) if seed not in added]
        kept.add(seeds, _counts(crashes=len(seeds)), 0.5)
        added.update(seeds)


def test_of_other_nodes_kinds_or_sources_it_knows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    SeedRecord(path, nodes=None, kind=None).add([1, 2], _counts(), 0.5)
    assert SeedRecord(path, nodes=None, kind=None).missing([1, 2, 3]) == [3]
    for nodes, kind in ((3, None), (None, "core")):
        other = SeedRecord(path, nodes=nodes, kind=kind)
        assert other.begun_anew
        assert other.missing([1, 2, 3]) == [1, 2, 3]
    monkeypatch.setattr(record, "source_digest", lambda: "others")
    assert SeedRecord(path, nodes=None, kind=None).begun_anew


def test_any_change_of_a_source_is_another_digest(tmp_path: Path) -> None:
    for folder in ("raft", "chaos/sim/groups", "chaos/nemesis"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1")
    before = source_digest(tmp_path)
    (tmp_path / "chaos/nemesis/a.py").write_text("2")  # no seed runs it
    assert source_digest(tmp_path) == before
    (tmp_path / "chaos/sim/groups/a.py").write_text("2")
    changed = source_digest(tmp_path)
    assert changed != before
    (tmp_path / "raft/a.py").rename(tmp_path / "raft/b.py")
    assert source_digest(tmp_path) not in {before, changed}


@pytest.mark.parametrize("text", ["", "[]", '{"sources": 1}', '{"passed": [[1]]}'])
def test_what_is_no_record_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"is no record of a campaign"):
        SeedRecord(path, nodes=None, kind=None)
    err = io.StringIO()
    assert sim_command(seeds="1..2", record=path, out=io.StringIO(), err=err) == 64
    assert "is no record" in err.getvalue()
    assert path.read_text() == text


def test_a_campaign_leaves_out_what_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    bad = {13}

    def run_seed(
        seed: int, nodes: int | None, *, kind: str | None = None
    ) -> tuple[campaign.SeedFailure | None, dict[str, int]]:
        ran.append(seed)
        failure = campaign.SeedFailure(seed=seed, nodes=nodes, node_count=3, rule="R2", detail="-")
        return (failure if seed in bad else None), _counts(crashes=1)

    monkeypatch.setattr(campaign, "run_seed", run_seed)
    path, out = tmp_path / "record.json", io.StringIO()
    arguments = {"record": path, "jobs": 1, "err": io.StringIO()}
    assert sim_command(seeds="1..25", out=out, **arguments) == 1
    assert "the record has 15 of 25 seeds" in out.getvalue()
    assert "1 FAILED" in out.getvalue()
    bad.clear()
    ran.clear()
    out = io.StringIO()
    assert sim_command(seeds="1..30", out=out, **arguments) == 0
    assert ran == [*range(11, 21), *range(26, 31)]
    assert "the record has 30 of 30 seeds" in out.getvalue()
    ran.clear()
    assert sim_command(seeds="1..30", out=io.StringIO(), **arguments) == 0
    assert ran == []


def test_what_never_came_up_is_told_as_often_as_the_record_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "run_seed", lambda *_, **__: (None, _counts(crashes=1)))
    monkeypatch.setattr(command, "LARGE_CAMPAIGN_SEEDS_MIN", 10)
    for _ in range(2):
        out = io.StringIO()
        arguments = {"record": tmp_path / "record.json", "jobs": 1, "err": io.StringIO()}
        assert sim_command(seeds="1..12", out=out, **arguments) == 2
        (told,) = (line for line in out.getvalue().splitlines() if "never came up" in line)
        assert " elections" in told
        assert " sends," in told  # a counter of groups, of which seed 4 is one
