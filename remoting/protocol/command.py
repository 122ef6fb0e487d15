"""RemotingCommand: the content of a frame, a request or a response.

Place in the data path: `remoting.protocol.frame` encodes and decodes it; handlers on both sides
read and make it. A request carries `code` and an `opaque` that its answer repeats; bits of `flag`
mark a response (1) and a oneway request (2), which must never be answered.

Not frozen: a frame is decoded per message, and a frozen dataclass costs more than twice as much to
make. Only the connection that sends a request writes to it (it assigns `opaque`).

Source: RocketMQ RemotingCommand, protocol version 479 (V5_3_3).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = [
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "LANGUAGE_JAVA",
    "LANGUAGE_PYTHON",
    "PROTOCOL_VERSION",
    "RemotingCommand",
    "SerializeType",
]

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
LANGUAGE_JAVA = 0
LANGUAGE_PYTHON = 3
# Clients refuse SQL92 pulls from brokers whose version is below 232, so every answer has one.
PROTOCOL_VERSION = 479


class SerializeType(enum.IntEnum):
    """The encoding of a frame's header; each frame names its own."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True, kw_only=True)
class RemotingCommand:
    """A request or a response. Every value in `ext_fields` is text ("12", "true")."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: int = LANGUAGE_PYTHON
    version: int = PROTOCOL_VERSION
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def response(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return an answer to this request: same opaque, same header encoding."""
        return RemotingCommand(
            code=code,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields={} if ext_fields is None else ext_fields,
            body=body,
            serialize_type=self.serialize_type,
        )
