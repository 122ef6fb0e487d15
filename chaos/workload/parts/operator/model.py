"""What an operator's changes make of a topic: its configuration as text. Pure.

Place in the data path: the part `operator` draws changes here, and records with each what every
answer about the topic has to say once it has taken effect.

Invariants: nothing of the brokers' own code is used; a change that names no attributes leaves them.

Source: RocketMQ TopicConfig, TopicAttributes, AttributeUtil, TopicConfigManager.updateTopicConfig.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["TopicChange", "TopicSettings", "lists_text", "next_change"]

_QUEUES_MAX: Final = 6
_PERMS: Final = (6, 6, 6, 4, 2)
_ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "dedupe": ("true", "false"),
    "message.type": ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
    "reserve.time": ("-1", "60000"),
}
_UNIT: Final = 1
_UNIT_SUB: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The configuration of one topic at one broker group."""

    read: int
    write: int
    perm: int
    order: bool
    flag: int
    filter_type: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def config_text(self) -> str:
        """Return the text of GET_TOPIC_CONFIG's answer."""
        attributes = ",".join(f"{name}={self.attributes[name]}" for name in sorted(self.attributes))
        return (
            f"{self.route_text()} order={str(self.order).lower()} filter={self.filter_type}"
            f" attributes={attributes or '-'}"
        )

    def route_text(self) -> str:
        """Return the text of what a route says of the topic."""
        return f"read={self.read} write={self.write} perm={self.perm} flag={self.flag}"

    def lists_text(self) -> str:
        """Return in which of a name server's lists the topic stands."""
        return lists_text(
            {
                "all": True,
                "cluster": True,
                "unit": bool(self.flag & _UNIT),
                "unit-sub": bool(self.flag & _UNIT_SUB),
                "unit-sub-ununit": self.flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A change, and what the topic is after it. `changes`: attributes as the request names them."""

    after: TopicSettings
    changes: Mapping[str, str]


def next_change(before: TopicSettings | None, rng: random.Random) -> TopicChange:
    """Draw a legal change of a topic; `before` is None for one that is not there."""
    attributes = dict(before.attributes) if before is not None else {}
    changes: dict[str, str] = {}
    if before is None or rng.random() < 0.6:
        for name in rng.sample(sorted(_ATTRIBUTES), rng.randint(1, 2)):
            if name in attributes and rng.random() < 0.3:
                changes[f"-{name}"] = ""
                del attributes[name]
            else:
                value = rng.choice(_ATTRIBUTES[name])
                changes[f"+{name}"] = attributes[name] = value
    drawn = TopicSettings(
        read=rng.randint(1, _QUEUES_MAX),
        write=rng.randint(1, _QUEUES_MAX),
        perm=rng.choice(_PERMS),
        order=rng.random() < 0.4,
        flag=rng.choice((0, 0, 1, 2, 3)),
        filter_type=rng.choice(("SINGLE_TAG", "MULTI_TAG")),
        attributes=attributes,
    )
    if before is not None and not changes and rng.random() < 0.3:
        # An operator who drains queues takes them from the senders alone.
        drawn = dataclasses.replace(before, write=rng.randint(1, before.write))
    return TopicChange(after=drawn, changes=changes)


def lists_text(member: Mapping[str, bool]) -> str:
    """Return the names of the lists in which a topic stands, or "-"."""
    return " ".join(name for name, there in member.items() if there) or "-"
