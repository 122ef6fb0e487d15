"""Ends of transactions, and what operators may ask of halves: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR, publish
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    EndTransactionRequestHeader,
    HalfRequestHeader,
    ListHalvesRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.END_TRANSACTION,
        "end_transaction.handle",
        header=EndTransactionRequestHeader,
        leader=True,
        needs=publish("topic", stored=True),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.LEDGERMQ_LIST_HALVES,
        "half_admin.list",
        header=ListHalvesRequestHeader,
        leader=True,
        body="answer: halves, nextOffset, isEnd, undecided",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.LEDGERMQ_SHOW_HALF,
        "half_admin.show",
        header=HalfRequestHeader,
        leader=True,
        body="answer: the half and its properties",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.LEDGERMQ_DISCARD_HALF,
        "half_admin.discard",
        header=HalfRequestHeader,
        leader=True,
        answer="msgId",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
)
