"""Rules for packets: of which flow, and what happens to them.

Place in the data path: `chaos.links.netns` keeps the rules of its tags, `chaos.netns.nf_tables`
encodes them for the kernel. Pure.

Invariants: a flow is directed, so the packets of the other direction are never touched; rules are
written in the order of `Action`: what is cut is neither lost by chance nor delayed.

Source: nft(8), family netdev; `nft list ruleset` in the switch's namespace prints them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["SHARE_SCALE", "Action", "Flow", "PacketRule", "in_order"]

SHARE_SCALE: Final = 10_000  # a share of packets is a whole number of these


class Action(enum.IntEnum):
    """Action on the packets of a flow."""

    DROP = 1
    DROP_SYN = 2
    """Drop the first packet of each new connection; those that are there go on."""
    LOSE = 3
    """Drop each packet with a chance of its own."""
    DELAY = 4
    """Hand each packet to the delay line, which sends it on later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The IPv4 packets between two addresses; `port`: the switch port that they come in by."""

    port: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketRule:
    """One rule. `share`: of the packets, in 1/SHARE_SCALE; only for LOSE."""

    flow: Flow
    action: Action
    share: int = SHARE_SCALE

    def __post_init__(self) -> None:
        if not 0 < self.share <= SHARE_SCALE:
            raise ValueError(f"a share of packets is 1..{SHARE_SCALE}, not {self.share}")


def in_order(rules: Iterable[PacketRule]) -> list[PacketRule]:
    """Return the rules as the kernel shall try them, each once."""
    return sorted(
        set(rules),
        key=lambda rule: (rule.flow.port, rule.action, rule.flow.source, rule.flow.target),
    )
