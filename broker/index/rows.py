"""Messages by key: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import QueryMessageRequestHeader

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.QUERY_MESSAGE,
        "query_message.handle",
        header=QueryMessageRequestHeader,
        answer="indexLastUpdateTimestamp indexLastUpdatePhyoffset",
        body="answer: records",
        needs=consume(topic="topic"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
)
