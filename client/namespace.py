"""Names of topics and groups as applications use them, and as brokers know them; pure.

Place in the data path: code inside this package uses the application's names; a name is wrapped,
`namespace%name`, where it goes into a request, and unwrapped where it comes out of an answer.

Invariants: wrapping twice is wrapping once; the prefixes `%RETRY%` and `%DLQ%` stay in front; the
system's own topics and groups belong to no namespace.

A name that brokers refuse is refused where an application gives it: they would refuse the
heartbeats, in the background, and the consumer would receive nothing.

Source: RocketMQ NamespaceUtil, TopicValidator (isSystemTopic, VALID_PATTERN).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from remoting.protocol.group_topics import DLQ_PREFIX, RETRY_PREFIX

__all__ = ["GROUP_SIZE_MAX", "NO_NAMESPACE", "Namespace"]

GROUP_SIZE_MAX: Final = 247  # %RETRY% and the name still make a file name
_TOPIC_SIZE_MAX: Final = 127
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_OF_TWO: Final = re.compile(r"[%|a-zA-Z0-9_+-]+")
"""Newer brokers of RocketMQ join the group and the topic of popped retries by `+`."""
_SEPARATOR: Final = "%"
_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "CID_RMQ_SYS_")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace by its name; the empty one changes nothing."""

    name: str = ""

    def __post_init__(self) -> None:
        if _SEPARATOR in self.name:
            raise ValueError(f"a namespace's name must not hold {_SEPARATOR!r}: {self.name!r}")

    def wrap(self, resource: str) -> str:
        """Return the topic or group as brokers know it."""
        if not self.name or not resource or _is_system(resource):
            return resource
        prefix, bare = _split(resource)
        if bare.startswith(self.name + _SEPARATOR):
            return resource
        return f"{prefix}{self.name}{_SEPARATOR}{bare}"

    def group(self, name: str) -> str:
        """Return the group as brokers know it. Raises ValueError where they refuse its name."""
        wire_name = self.wrap(name)
        if len(wire_name) > GROUP_SIZE_MAX or not _NAME.fullmatch(wire_name):
            raise ValueError(
                f"group {wire_name[:40]!r} is blank, has more than {GROUP_SIZE_MAX} characters, or"
                f" others than {_NAME.pattern}"
            )
        return wire_name

    def check_topic(self, name: str) -> None:
        """Raise ValueError where brokers refuse the topic's name."""
        prefix, bare = _split(self.wrap(name))
        size_max, pattern = _TOPIC_SIZE_MAX, _NAME
        if prefix:
            size_max, pattern = GROUP_SIZE_MAX + 1 + _TOPIC_SIZE_MAX, _NAME_OF_TWO
        if len(bare) > size_max or not pattern.fullmatch(bare):
            raise ValueError(
                f"topic {bare[:40]!r} is blank, has more than {size_max} characters, or others than"
                f" {pattern.pattern}"
            )

    def unwrap(self, resource: str) -> str:
        """Return the application's name of a topic or group; other namespaces' stay unchanged."""
        if not self.name:
            return resource
        prefix, bare = _split(resource)
        own = self.name + _SEPARATOR
        return prefix + bare.removeprefix(own) if bare.startswith(own) else resource


NO_NAMESPACE: Final = Namespace()


def _split(resource: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if resource.startswith(prefix):
            return prefix, resource.removeprefix(prefix)
    return "", resource


def _is_system(resource: str) -> bool:
    return resource in _SYSTEM_TOPICS or resource.startswith(_SYSTEM_PREFIXES)
