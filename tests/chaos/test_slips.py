"""Slips of administrators: a broker answers each as the tables say, and keeps nothing of it; one
that carries out what is illegal, or that refuses it otherwise, is seen."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from broker.access.users import UserProcessor
from chaos.workload.parts.common.drill import Unsure
from chaos.workload.parts.drills import slips
from chaos.workload.parts.drills.slips import SlipDrill
from tests.chaos.drilled_broker import drilled
from tests.chaos.histories import ops_of


async def test_every_slip_is_refused_as_its_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drilled(tmp_path, monkeypatch, 1) as (broker, base):
        drill = SlipDrill(base, "drills-slips")
        await drill.begin()
        topics, groups = set(broker.replica.state.topics), set(broker.replica.state.groups)
        table = [*drill.table(), *slips.of_nobody(), *(drill.incomplete() for _ in range(200))]
        for slip in table:
            with contextlib.suppress(Unsure):  # what was answered otherwise is seen below
                await drill.send(slip)
        state = broker.replica.state
        assert (set(state.topics), set(state.groups)) == (topics, groups)
        assert not state.users.users
        assert set(state.consumer_offsets.values()) == {0}  # its own
    rows = list(ops_of(tmp_path / "history"))
    assert len(rows) > 280
    assert [row for row in rows if row["status"] != row["ref"]] == []


async def test_a_user_without_a_password_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = UserProcessor._read

    def lenient(self: UserProcessor, *arguments: object) -> object:
        name, info, kind, status = read(self, *arguments)  # type: ignore[arg-type]
        info.password = info.password or "default"
        return name, info, kind, status

    monkeypatch.setattr(UserProcessor, "_read", lenient)
    async with drilled(tmp_path, monkeypatch, 2) as (_, base):
        with pytest.raises(Unsure):
            await SlipDrill(base, "drills-slips").run()
    *_, last = ops_of(tmp_path / "history")
    assert (last["ref"], last["status"]) == ("16 password can not be blank", "0 None")
