"""Offsets by queue, of which those of one topic are found without walking all others'.

Place in the data path: `broker.state.state` keeps the queues' ends and the groups' offsets so; the
deletion of a topic takes what is its own, on every replica's loop, and operators delete thousands
of topics one after the other. Pure part of the replicated state.

Invariants: keys have the order of a dict, that of their creation; each is in the index of its
topic, since single items alone are set and deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

__all__ = ["QueueOffsets"]

_Key = TypeVar("_Key", bound=tuple[str, int] | tuple[str, str, int])  # topic, queue id at its end


class QueueOffsets(dict[_Key, int]):
    __slots__ = ("_by_topic", "_created")

    def __init__(self, offsets: Mapping[_Key, int] | None = None) -> None:
        super().__init__(offsets or {})
        self._by_topic: dict[str, dict[_Key, int]] = {}  # the number of each key's creation
        self._created = 0
        for key in self:
            self._index(key)

    def __setitem__(self, key: _Key, offset: int) -> None:
        if key not in self:
            self._index(key)
        super().__setitem__(key, offset)

    def __delitem__(self, key: _Key) -> None:
        super().__delitem__(key)
        keys = self._by_topic[key[-2]]
        del keys[key]
        if not keys:
            del self._by_topic[key[-2]]

    # The index would miss what these do.
    clear = pop = popitem = setdefault = update = __ior__ = None  # type: ignore[assignment]

    def of_topics(self, topics: Collection[str]) -> list[_Key]:
        """Return the keys of the topics' queues, in their order."""
        found: dict[_Key, int] = {}
        for topic in topics:
            found |= self._by_topic.get(topic, {})
        return sorted(found, key=found.__getitem__)

    def _index(self, key: _Key) -> None:
        self._by_topic.setdefault(key[-2], {})[key] = self._created
        self._created += 1
