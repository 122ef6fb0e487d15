"""Patterns of client addresses, as plain_acl.yml writes them. Pure.

Place in the data path: white lists of `broker.access.accounts`.

| pattern | matches |
|---|---|
| empty | nobody |
| `*`, `*.*.*.*`, `*:*:*:*:*:*:*:*` | everybody |
| `10.1.2.3`, `::1` | that address |
| `10.1.2.3,10.1.2.4` | each of them |
| `10.1.2.{3,4}`, `fe80::{1,2}` | likewise, by the last part |
| `10.1.2.*`, `10.1.*.*`, `10.1.2.1-90`, `10.1.2-3.*`, `fe80::1-ff:*` | a range |

Invariant: a pattern that can't be parsed is an error that names it, never "everybody".

Source: RocketMQ RemoteAddressStrategyFactory.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["AddressPattern", "AddressPatternError", "canonical_ip"]

_Ranges: TypeAlias = tuple[tuple[int, int], ...]
_EVERYBODY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_ALTERNATIVES_MAX: Final = 1_024
_IPV4_PARTS: Final = 4
_IPV6_PARTS: Final = 8


class AddressPatternError(ValueError):
    """Error in a pattern; names it."""


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """Parsed pattern; `ranges` has, for each alternative, the least and greatest value of each part
    of the address."""

    everybody: bool
    ranges: tuple[_Ranges, ...]

    @classmethod
    def of(cls, text: str) -> AddressPattern:
        """Return the pattern in `text`. Raises AddressPatternError."""
        text = text.strip()
        if text in _EVERYBODY:
            return cls(True, ())
        if not text:
            return cls(False, ())
        alternatives = _alternatives(text)
        if len(alternatives) > _ALTERNATIVES_MAX:
            raise AddressPatternError(
                f"{text[:40]!r}... names {len(alternatives)} addresses, more than "
                f"{_ALTERNATIVES_MAX}"
            )
        try:
            return cls(False, tuple(_ranges(alternative) for alternative in alternatives))
        except ValueError as error:
            raise AddressPatternError(f"{text!r} is no address or range: {error}") from error

    def matches(self, ip: str) -> bool:
        """Whether an address without its port matches; text that is no address matches only
        "everybody"."""
        if self.everybody:
            return True
        if not self.ranges:
            return False
        try:
            parts = _parts(ip)
        except ValueError:
            return False
        return any(
            len(ranges) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
            for ranges in self.ranges
        )


def canonical_ip(ip: str) -> str:
    """Return an IPv4-mapped IPv6 address as IPv4, and anything else unchanged."""
    if not ip.lower().startswith("::ffff:"):
        return ip
    try:
        mapped = ipaddress.IPv6Address(ip).ipv4_mapped
    except ValueError:
        return ip
    return ip if mapped is None else str(mapped)


def _alternatives(text: str) -> list[str]:
    if not text.endswith("}"):
        return [part.strip() for part in text.split(",")]
    head, brace, last = text[:-1].partition("{")
    if not brace or not head.endswith((".", ":")):
        raise AddressPatternError(f"{text!r}: braces stand for the last part of an address")
    return [head + part.strip() for part in last.split(",")]


def _ranges(text: str) -> _Ranges:
    if "*" not in text and "-" not in text:
        return tuple((part, part) for part in _parts(text))
    if ":" in text:
        return _ranges_of_ipv6(text)
    parts = text.split(".")
    if len(parts) != _IPV4_PARTS:
        raise ValueError(f"{len(parts)} parts instead of 4")
    ranges = tuple(_range(part.strip(), 10, 0xFF) for part in parts)
    first = next(at for at, (low, high) in enumerate(ranges) if low != high or at == 3)
    if any(part.strip() != "*" for part in parts[first + 1 :]):
        raise ValueError("behind the first range only * may stand")
    return ranges


def _ranges_of_ipv6(text: str) -> _Ranges:
    """Return the ranges of an IPv6 pattern: in its last part, or in its last two if the last is
    `*`. Raises ValueError."""
    head, _, last = text.rpartition(":")
    tail = [last]
    if "-" in head:
        head, _, before = head.rpartition(":")
        tail.insert(0, before)
        if last != "*":
            raise ValueError("behind the first range only * may stand")
    if "*" in head or "-" in head:
        raise ValueError("ranges stand at the end")
    known = _IPV6_PARTS - len(tail)
    if head.endswith(":") or "::" in head:
        left, _, right = (head + ":" if head.endswith(":") else head).partition("::")
        groups = [group for group in left.split(":") if group]
        groups_right = [group for group in right.split(":") if group]
        groups += ["0"] * (known - len(groups) - len(groups_right)) + groups_right
    else:
        groups = head.split(":")
    if len(groups) != known:
        raise ValueError(f"{len(groups) + len(tail)} parts instead of 8")
    return tuple(_range(group, 16, 0xFFFF) for group in [*groups, *tail])


def _range(text: str, base: int, largest: int) -> tuple[int, int]:
    if text == "*":
        return 0, largest
    low_text, dash, high_text = text.partition("-")
    low = int(low_text, base)
    high = int(high_text, base) if dash else low
    if not 0 <= low <= high <= largest:
        raise ValueError(f"{text!r} is not within 0 to {largest}")
    return low, high


def _parts(ip: str) -> tuple[int, ...]:
    address = ipaddress.ip_address(canonical_ip(ip.strip().partition("%")[0]))
    packed = address.packed
    if address.version == _IPV4_PARTS:
        return tuple(packed)
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))
