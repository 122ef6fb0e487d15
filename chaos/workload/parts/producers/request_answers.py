"""Bodies of answers, and what a request has to bring so that it can be answered.

Place in the data path: responders of the part `requests` make answers of values and look at what
they are given, requesters read the values again. Pure.

Source: RocketMQ MessageUtil.createReplyMessage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.records.property_names import PropertyName

__all__ = ["WHOLE_REQUEST", "body_of_answer", "brought_by_request", "value_of_answer"]

_GARBLED_MAX: Final = 100  # bytes that are told of a body that is no answer's
_BROUGHT: Final = (
    PropertyName.CLUSTER,
    PropertyName.CORRELATION_ID,
    PropertyName.REPLY_TO_CLIENT,
    PropertyName.TTL,
)
WHOLE_REQUEST: Final = " ".join(_BROUGHT)


def brought_by_request(properties: Mapping[str, str]) -> str:
    """Return what a request has of what an answer to it is made of."""
    return " ".join(name for name in _BROUGHT if properties.get(name))


def body_of_answer(answer: str) -> bytes:
    """Return the body of the answer with this value; `-of-SIZE` at its end makes it so large."""
    value, _, size = answer.partition("-of-")
    text = f"{value}-of-{size}\n".encode() if size else answer.encode()
    return text + b"=" * (int(size) - len(text)) if size else text


def value_of_answer(body: bytes) -> str:
    """Return the value of the answer with this body; what is no answer's body, as it is."""
    value = body.partition(b"\n")[0].decode(errors="backslashreplace")
    whole = "-of-" not in value or body == body_of_answer(value)
    return value if whole else f"{body[:_GARBLED_MAX]!r}, {len(body)} bytes"
