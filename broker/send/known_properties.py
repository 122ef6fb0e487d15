"""The few message properties that the broker itself obeys, read without building a dict.

Place in the data path: once per sent message. The block is searched for the names; where a hit
does not stand at a property's beginning, or a rarer name occurs at all, the whole block is parsed
instead. As everywhere the last of two equal names wins.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from remoting.records.properties import parse_properties_text

__all__ = ["KnownProperties"]

_DELAYS: Final = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


class KnownProperties(NamedTuple):
    """Values of these properties; `delay` names the delaying property that is set, `pop_check` is
    POP_CK's value."""

    uniq_key: str | None
    tags: str | None
    is_half: bool = False
    delay: str | None = None
    pop_check: str | None = None

    @classmethod
    def of(cls, text: str) -> KnownProperties:
        """Read them from a block in text form."""
        if "TRAN_MSG" in text or "DELAY" in text or "TIMER_" in text or "POP_CK" in text:
            return cls._parsed(text)
        key_at, tags_at = text.rfind("UNIQ_KEY\x01"), text.rfind("TAGS\x01")
        if (key_at > 0 and text[key_at - 1] != "\x02") or (
            tags_at > 0 and text[tags_at - 1] != "\x02"
        ):
            return cls._parsed(text)
        return cls(
            _value(text, key_at + 9) if key_at >= 0 else None,
            _value(text, tags_at + 5) if tags_at >= 0 else None,
        )

    @classmethod
    def _parsed(cls, text: str) -> KnownProperties:
        pairs = parse_properties_text(text)
        return cls(
            pairs.get("UNIQ_KEY"),
            pairs.get("TAGS"),
            pairs.get("TRAN_MSG", "").lower() == "true",
            next((name for name in _DELAYS if pairs.get(name, "0") != "0"), None),
            pairs.get("POP_CK"),
        )


def _value(text: str, start: int) -> str | None:
    end = text.find("\x02", start)
    return (text[start:] if end < 0 else text[start:end]) or None
