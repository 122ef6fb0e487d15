"""The properties of one sent message: those that the broker obeys, and the block that it stores.

Place in the data path: made once per sent message. The block is searched for the names, without
building a dict; where a hit does not stand at a property's beginning, or a rarer name occurs at
all, the whole block is parsed instead. As everywhere the last of two equal names wins. What the
broker adds is appended to the block as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.records.properties import parse_properties_text
from remoting.records.property_names import PropertyName, delaying_property

__all__ = ["Envelope", "block_text"]

# What is searched for in the text of a block; TIMER_ begins several names.
_TRAN_MSG: Final = PropertyName.TRAN_MSG
_DELAY: Final = PropertyName.DELAY
_RECEIPT: Final = PropertyName.POP_CK
_UNIQ_KEY: Final = f"{PropertyName.UNIQ_KEY}\x01"
_UNIQ_KEY_SIZE: Final = len(_UNIQ_KEY)
_TAGS: Final = f"{PropertyName.TAGS}\x01"
_TAGS_SIZE: Final = len(_TAGS)


class Envelope:
    """The properties of one sent message that a broker obeys, and their block.

    `delay` names the delaying property that is set; `is_half`: the message begins a transaction.
    """

    __slots__ = ("_has_receipt", "_text", "delay", "is_half", "tags", "uniq_key")

    def __init__(self, text: str) -> None:
        """Read what the broker obeys from a block in text form."""
        self._text = text
        self._has_receipt = False
        self.is_half = False
        self.delay: str | None = None
        if _TRAN_MSG in text or _DELAY in text or "TIMER_" in text or _RECEIPT in text:
            self._parse()
            return
        key_at, tags_at = text.rfind(_UNIQ_KEY), text.rfind(_TAGS)
        if (key_at > 0 and text[key_at - 1] != "\x02") or (
            tags_at > 0 and text[tags_at - 1] != "\x02"
        ):
            self._parse()
            return
        self.uniq_key = _value(text, key_at + _UNIQ_KEY_SIZE) if key_at >= 0 else None
        self.tags = _value(text, tags_at + _TAGS_SIZE) if tags_at >= 0 else None
        if (key_at >= 0 and self.uniq_key is None) or (tags_at >= 0 and self.tags is None):
            self._parse()  # an empty value is none: an earlier one of that name is in force

    def _parse(self) -> None:
        pairs = self.pairs()
        self.uniq_key = pairs.get(PropertyName.UNIQ_KEY)
        self.tags = pairs.get(PropertyName.TAGS)
        self.is_half = pairs.get(PropertyName.TRAN_MSG, "").lower() == "true"
        self.delay = delaying_property(pairs)
        self._has_receipt = _RECEIPT in pairs

    @property
    def is_plain(self) -> bool:
        """Whether the message is stored at once, and its block as it came."""
        return not self.is_half and self.delay is None and not self._has_receipt

    def pairs(self) -> dict[str, str]:
        """Parse the block as it is now."""
        return parse_properties_text(self._text)

    def drop_receipt(self) -> None:
        """Drop the receipt of a pop by which the sender got the message, if it has one."""
        if self._has_receipt:
            pairs = self.pairs()
            del pairs[_RECEIPT]
            self._text = block_text(pairs)
            self._has_receipt = False

    def append(self, block: str) -> None:
        """Append a block of further properties, in text form."""
        text = self._text
        self._text = f"{text}{block}" if not text or text[-1] == "\x02" else f"{text}\x02{block}"

    def encoded(self) -> bytes:
        """Return the block to be stored."""
        return self._text.encode()


def block_text(pairs: Mapping[str, str]) -> str:
    """Return the pairs as a block in text form. Caller's duty: none holds a separator."""
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()])


def _value(text: str, start: int) -> str | None:
    end = text.find("\x02", start)
    return (text[start:] if end < 0 else text[start:end]) or None
