"""`ledgermq tx` against a real broker: what an operator sees and does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from client.connection.instance import InstanceSettings
from client.message import DeliveredMessage, Message
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    half_message,
)
from ledgermq.transactions import (
    TransactionError,
    discard_halves,
    list_halves,
    resume_halves,
    show_half,
)
from tests.client.real_broker import RealBroker, make_topic, real_broker

INSTANCE = InstanceSettings()


class Silent:
    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.UNKNOWN


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RealBroker]:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        yield broker


async def listed(broker: RealBroker, capsys: Any, **changed: Any) -> tuple[list[str], str]:
    options = {
        "state": "undecided",
        "topic": None,
        "group": None,
        "broker": None,
        "first": 0,
        "count": 100,
        "as_json": False,
        **changed,
    }
    await list_halves(broker.name_servers, instance=INSTANCE, **options)
    printed = capsys.readouterr()
    return printed.out.splitlines(), printed.err


async def test_an_operator_lists_shows_discards_and_resumes(
    broker: RealBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = broker.name_servers
    async with TransactionProducer("PG", servers, Silent()) as producer:
        sends = [
            await producer.send_half(
                Message(topic="T", body=b"pay %d" % number, keys=(f"o{number}",))
            )
            for number in range(5)
        ]
        ids = [send.offset_msg_id for send in sends]
        lines, more = await listed(broker, capsys, count=3)
        assert [line.split()[0] for line in lines] == ids[:3]
        assert "broker-a@0 topic T/0 group PG" in lines[0]
        assert lines[0].endswith("checks 0 keys o0")
        assert more == "there is more: --broker broker-a --from 3\n"
        lines, more = await listed(broker, capsys, first=3, as_json=True)
        rows = [json.loads(line) for line in lines]
        assert [(row["msgId"], row["keys"], row["broker"]) for row in rows] == [
            (ids[3], "o3", "broker-a"),
            (ids[4], "o4", "broker-a"),
        ]
        assert more == ""
        assert (await listed(broker, capsys, topic="U")) == ([], "")

        await show_half(servers, ids[1], broker=None, as_json=False, instance=INSTANCE)
        shown = capsys.readouterr().out.splitlines()
        assert "state: undecided" in shown
        assert "property PGROUP: PG" in shown
        assert "body: pay 1" in shown

        await discard_halves(servers, ids[:1], broker=None, as_json=True, instance=INSTANCE)
        copy = json.loads(capsys.readouterr().out)["copy"]
        await discard_halves(servers, ids[:1], broker=None, as_json=False, instance=INSTANCE)
        assert capsys.readouterr().out == f"{ids[0]} was discarded already\n"
        lines, _ = await listed(broker, capsys, state="discarded")
        assert [line.split()[0] for line in lines] == [copy]

        assert (await producer.end(half_message(sends[1]), Decision.COMMIT)).error is None
        with pytest.raises(TransactionError, match="already committed"):
            await discard_halves(servers, [ids[1]], broker=None, as_json=False, instance=INSTANCE)
        with pytest.raises(TransactionError, match="is committed: what can be resumed"):
            await resume_halves(servers, [ids[1]], broker=None, as_json=False, instance=INSTANCE)
        await resume_halves(servers, [copy], broker=None, as_json=False, instance=INSTANCE)
        assert capsys.readouterr().out == f"{copy} is undecided again, and will be checked\n"
        with pytest.raises(TransactionError, match="resumed before"):
            await resume_halves(servers, [copy], broker=None, as_json=False, instance=INSTANCE)
        lines, _ = await listed(broker, capsys)
        assert len(lines) == 4


@pytest.mark.parametrize("unknown", ["x", "7F000001000000010000000000000000"])
async def test_an_unknown_half_is_said_to_be_unknown(broker: RealBroker, unknown: str) -> None:
    for work in (
        show_half(broker.name_servers, unknown, broker=None, as_json=True, instance=INSTANCE),
        discard_halves(
            broker.name_servers, [unknown], broker="broker-a", as_json=True, instance=INSTANCE
        ),
    ):
        with pytest.raises(TransactionError, match=r"no message|no broker group"):
            await work
