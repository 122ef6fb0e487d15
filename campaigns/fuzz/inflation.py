"""Requests that stand for far more than they are: bits, lists, counts and ranges at their most.

A row of a few bytes may set thousands of bits, a list may name one thing a thousand times, a number
may ask for all there is. `inflated` makes such a body of one that fits, `inflated_fields` such
fields; both stay within `size`. Pure.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final

__all__ = ["inflated", "inflated_fields"]

_BITS: Final = base64.b64encode(b"\xff" * 512).decode()
_BITS_NAMES: Final = {"b", "bitSet"}
_RANGE_NAMES: Final = {"so", "startOffset"}
_QUEUE_NAMES: Final = {"q", "queueId"}
_OWN_NAMES: Final = {"topicName", "groupName", "topic", "resource"}  # a row of its own each


def inflated(rng: random.Random, value: Any, size: int, number: int = 0) -> Any:
    """The JSON value with one of its lists full, its bitsets set, its numbers all different."""
    if not isinstance(value, dict):
        return value
    lists = [name for name, item in value.items() if isinstance(item, list) and item]
    full = rng.choice(lists) if lists else None
    grown: dict[str, Any] = {}
    for name, item in value.items():
        if name in _BITS_NAMES:
            grown[name] = _BITS
        elif name in _RANGE_NAMES:
            grown[name] = number * rng.choice((0, 1, 4_096, 5_000))
        elif name in _QUEUE_NAMES:
            grown[name] = number % 64
        elif name in _OWN_NAMES and isinstance(item, str) and rng.random() < 0.7:
            grown[name] = f"{item}{number}"
        elif name in lists:
            if number:  # within a row
                grown[name] = [inflated(rng, one, 0, number) for one in item]
                continue
            one = len(json.dumps(inflated(rng, item[0], 0, 1)))
            count = max(1, size // one) if name == full else len(item)
            grown[name] = [inflated(rng, item[0], 0, at + 1) for at in range(count)]
        else:
            grown[name] = inflated(rng, item, size, number)
    return grown


def inflated_fields(rng: random.Random, fields: dict[str, str], size: int) -> dict[str, str]:
    """Some of them as long as they may be, or as large a number."""
    grown = dict(fields)
    for name, value in fields.items():
        times = max(1, size // (len(value) + 1))
        grown[name] = rng.choice(
            (value, value, value, f"{value};" * times, value * times, "-1", str(2**31 - 1))
        )
    return grown
