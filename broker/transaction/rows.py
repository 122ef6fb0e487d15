"""Ends of transactions: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import publish
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import EndTransactionRequestHeader

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
)
