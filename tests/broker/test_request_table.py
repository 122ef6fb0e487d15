"""The table of requests: whole, true of the handlers, and what docs/DIVERGENCE.md shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.entry.payload import UNIT
from broker.entry.topics import Topic
from broker.process.not_served import NAME_SERVER, NOT_SERVED, TO_CLIENTS
from broker.process.processors import Processors
from broker.process.request_table import SERVED, dispatch_of, tables, updated
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from tests.broker.rig import Rig, send_fields

DIVERGENCE = Path(__file__).resolve().parents[2] / "docs" / "DIVERGENCE.md"
LEGAL = {"S": "G", "I": "1", "L": "1", "B": "true"}
# Where a value is checked before the next field is looked at.
FIELDS = {
    "topic": "T",
    "b": "T",
    "queueId": "0",
    "e": "0",
    "perm": "6",
    "a": "PG",
    "producerGroup": "PG",
    "commitOrRollback": "8",
    "tranStateTableOffset": "0",
    "attributes": "",
    "offset": "-1",
}
FITTING = [row for row in SERVED if any(field.required for field in row.header_fields())]


def test_every_code_of_rocketmq_has_its_place():
    served = [row.code for row in SERVED]
    assert len(served) == len(set(served)), "no code stands in two rows"
    places = [set(served), set(NOT_SERVED), TO_CLIENTS, NAME_SERVER]
    for code in RequestCode:
        assert sum(code in place for place in places) == 1, code.name


def test_divergence_shows_the_table():
    document = DIVERGENCE.read_text(encoding="utf-8")
    assert updated(document) == document, (
        "bring it up to date: python -m broker.process.request_table docs/DIVERGENCE.md"
    )


def test_a_document_without_marks_is_not_updated():
    with pytest.raises(ValueError, match="substring"):
        updated("# nothing\n")


def test_tables_show_every_row():
    shown = tables()
    for row in SERVED:
        assert f"| {row.code:d} | {row.name} |" in shown
    for code in NOT_SERVED:
        assert f"{code.name} ({code:d})" in shown


@pytest.mark.parametrize("row", FITTING, ids=lambda row: row.name)
async def test_required_fields_are_required(row: Row, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for name in ("T", "G"):
        rig.state.topics[name] = Topic(name=name)
        rig.state.groups[name] = {}
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    handler = handlers[row.code]
    half = send_fields(TRAN_MSG="true", PGROUP="PG")
    for header in (half, send_fields(key="K2")):  # what requests name is there
        stored = await rig.ask(handlers[310], 310, header, b"body")
        assert stored.code == 0, stored.remark
    (half_stored,) = rig.state.halves.undecided()
    message = rig.queues.get("T", 0).read(0, 1)
    fields = {
        field.name: FIELDS.get(field.name, LEGAL[field.type]) for field in row.header_fields()
    }
    if "commitLogOffset" in fields:
        fields["commitLogOffset"] = str(half_stored.position)
    if row.code in {RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK}:
        fields["offset"] = str(UNIT.unpack(message)[0])
    for field in row.header_fields():
        if field.required:
            given = {name: value for name, value in fields.items() if name != field.name}
            answer = await rig.ask(handler, row.code, given)
            assert answer.code != 0
            assert field.name in (answer.remark or ""), answer.remark
    await rig.tasks.stop()
    rig.queues.close()
