"""Topics: configuration, permissions, and names reserved for the system.

Pure values and rules, used by `broker.state.state` (replicated table) and the processors. Sources:
RocketMQ TopicConfig, TopicValidator, TopicConfigManager.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.entry.payload import TopicCommand
from remoting.protocol.group_topics import DLQ_PREFIX, RETRY_PREFIX
from remoting.protocol.route import PERM_INHERIT, PERM_READ, PERM_WRITE

__all__ = [
    "DEFAULT_TOPIC",
    "DLQ_PREFIX",
    "HALF_TOPIC",
    "OP_TOPIC",
    "PERM_INHERIT",
    "PERM_READ",
    "PERM_WRITE",
    "RETRY_PREFIX",
    "SCHEDULE_TOPIC",
    "SYS_FLAG_UNIT",
    "SYS_FLAG_UNIT_SUB",
    "TIMER_TOPIC",
    "TRACE_TOPIC",
    "TRANS_CHECK_MAX_TOPIC",
    "Topic",
    "TopicNameError",
    "check_group_name",
    "check_topic_name",
    "is_dedupe_topic",
    "is_group_name",
    "is_system_topic",
    "system_topics",
]

SYS_FLAG_UNIT = 1  # made by a producer in unit mode; name servers list these
SYS_FLAG_UNIT_SUB = 2  # the retry topic of consumers in unit mode
TOPIC_NAME_SIZE_MAX = 127
GROUP_NAME_SIZE_MAX = 247  # %RETRY% and the name still make a file name

DEFAULT_TOPIC = "TBW102"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NOT_FOR_SENDS = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        TRANS_CHECK_MAX_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_SYSTEM = _NOT_FOR_SENDS | {DEFAULT_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}


class TopicNameError(ValueError):
    """Illegal name of a topic; the text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """RocketMQ's TopicConfig. `attributes` may hold `dedupe` = "false"."""

    name: str
    read_queue_count: int = 8
    write_queue_count: int = 8
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def dedupes(self) -> bool:
        """Whether a UNIQ_KEY is stored at most once (promise G2)."""
        return is_dedupe_topic(self.name) and self.attributes.get("dedupe") != "false"

    def command(self) -> TopicCommand:
        return TopicCommand(
            self.name,
            self.read_queue_count,
            self.write_queue_count,
            self.perm,
            self.filter_type,
            self.sys_flag,
            self.order,
            dict(self.attributes),
        )

    @classmethod
    def of_command(cls, command: TopicCommand) -> Topic:
        return cls(
            name=command.name,
            read_queue_count=command.read_queue_count,
            write_queue_count=command.write_queue_count,
            perm=command.perm,
            filter_type=command.filter_type,
            sys_flag=command.sys_flag,
            order=command.order,
            attributes=dict(command.attributes),
        )


def check_topic_name(name: str) -> None:
    """Check a topic's name by RocketMQ's TopicValidator. Raises TopicNameError."""
    if not name.strip():
        raise TopicNameError("The specified topic is blank")
    if not _NAME.fullmatch(name):
        raise TopicNameError(
            f"The specified topic {name!r} contains illegal characters, allowing only "
            "^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > TOPIC_NAME_SIZE_MAX:
        raise TopicNameError(
            f"The specified topic is longer than topic max length {TOPIC_NAME_SIZE_MAX}"
        )


def check_group_name(name: str) -> None:
    """Check a group's name by RocketMQ's rule: it becomes part of topics and paths.

    Raises TopicNameError.
    """
    if not is_group_name(name):
        raise TopicNameError(
            f"the specified group {name[:40]!r} is blank, has more than {GROUP_NAME_SIZE_MAX} "
            "characters, or others than ^[%|a-zA-Z0-9_-]+$"
        )


def is_group_name(name: str) -> bool:
    return len(name) <= GROUP_NAME_SIZE_MAX and _NAME.fullmatch(name) is not None


def is_system_topic(name: str) -> bool:
    return name in _SYSTEM or name.startswith("rmq_sys_")


def is_forbidden_for_sends(name: str) -> bool:
    return name in _NOT_FOR_SENDS


def is_dedupe_topic(name: str) -> bool:
    """Whether messages of a topic are deduplicated by default: only those of user topics, since one
    may rightly be stored again in a retry, dead-letter or system topic."""
    return not (
        name.startswith((RETRY_PREFIX, DLQ_PREFIX, "RMQ_SYS_", "rmq_sys_")) or name in _SYSTEM
    )


def system_topics(cluster: str, group: str) -> dict[str, Topic]:
    """Return the topics that every broker registers (facts: name server, special topics)."""
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    topics = [
        Topic(name=DEFAULT_TOPIC, perm=everything, read_queue_count=8, write_queue_count=8),
        Topic(name=cluster, perm=everything, read_queue_count=16, write_queue_count=16),
        Topic(name=group, perm=everything, read_queue_count=1, write_queue_count=1),
        Topic(name="SELF_TEST_TOPIC", read_queue_count=1, write_queue_count=1),
        Topic(name="BenchmarkTest", read_queue_count=1024, write_queue_count=1024),
        Topic(name="OFFSET_MOVED_EVENT", read_queue_count=1, write_queue_count=1),
        Topic(name=SCHEDULE_TOPIC, read_queue_count=18, write_queue_count=18),
        Topic(name=TIMER_TOPIC, read_queue_count=1, write_queue_count=1),
        Topic(name=HALF_TOPIC, read_queue_count=1, write_queue_count=1),
        Topic(name=OP_TOPIC, read_queue_count=1, write_queue_count=1),
        Topic(name=TRANS_CHECK_MAX_TOPIC, read_queue_count=1, write_queue_count=1),
        Topic(name=f"{cluster}_REPLY_TOPIC", read_queue_count=1, write_queue_count=1),
    ]
    return {topic.name: topic for topic in topics}
