"""Where the message stands that an offset message id names.

Place in the data path: `client.administer.admin` sends requests about one message to that node, or
to the leader of its group.
"""

from __future__ import annotations

from client.connection.send_codec import MessageRefusedError
from remoting.errors import RecordError
from remoting.records.message_id import parse_offset_msg_id

__all__ = ["place_of"]


def place_of(offset_msg_id: str) -> tuple[str, int]:
    """Return the table address and the log position in an id. Raises MessageRefusedError where it
    is malformed."""
    try:
        host, port, position = parse_offset_msg_id(offset_msg_id)
    except RecordError as error:
        raise MessageRefusedError(f"{offset_msg_id[:64]!r} is no message id: {error}") from error
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", position
