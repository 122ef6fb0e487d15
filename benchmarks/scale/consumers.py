"""Consumers: a pull group, a push group with a few refusals, the final drain, queries by key.

Place in the data path: `benchmarks.scale.timeline` lets them read in each stretch what producers
stored in it; the drain reads all of it again at the end.

Invariant: no message is shown before it is committed; each group reads each queue in its order.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.scale.record import (
    MS,
    NULL,
    QUEUES,
    RETRY,
    US,
    F,
    Group,
    Kind,
    Numbers,
    Record,
    Shown,
    Type,
    Who,
    committed_at,
    parts,
)

__all__ = ["Consumers"]

_DRAINED: Final = 32
_READ: Final = 16  # messages per poll, and between stored offsets
_QUERIES: Final = 200  # per stretch, at most
_MEMBERS: Final = 4  # per group
_OWNED: Final = QUEUES // _MEMBERS
_GROUPS: Final = (Group.PULL, Group.PUSH)


class Consumers:
    """The consumers of all groups. Members own two queues each, other ones in each stretch."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng((seed, 1))
        self._turn = -1
        self._stored = {group: np.full(QUEUES, NULL) for group in _GROUPS}

    def owner(self, queue: Numbers) -> Numbers:
        return (queue // _OWNED - self._turn) % _MEMBERS

    def assign(self, record: Record, now: int) -> int:
        """Assign queues to each member, which fetches the group's offsets; return the end time."""
        self._turn += 1
        member, queue = np.arange(_MEMBERS), np.arange(QUEUES)
        for place, group in enumerate(_GROUPS):
            t = now + (place * _MEMBERS + member) * 20 * US
            record.op(
                F.ASSIGN,
                t,
                t + 10 * US,
                group=group,
                who=Who.PUSHED if place else Who.PULLER,
                number=member,
                second=0,
                queue=(member + self._turn) % _MEMBERS * _OWNED,  # the first queue that it owns
                on_group=0,
            )
            t = now + MS + (place * QUEUES + queue) * 20 * US
            record.op(
                F.FETCH_OFFSET,
                t,
                t + 15 * US,
                group=group,
                who=Who.KEEPER,
                number=self.owner(queue),
                second=place * 4,
                queue=queue,
                offset=self._stored[group],
            )
        return now + 3 * MS

    def pull(self, record: Record, shown: Shown, node: int) -> int:
        """Poll sixteen messages at a time; return the time at which the last poll ended."""
        first, size = parts(shown.queue, _READ)
        last, queue = first + size - 1, shown.queue[first]
        t = shown.t[last] + 1500 * US + queue * 40 * US
        refs = record.refer(shown.message, shown.queue, has_offset=1)
        record.op(
            F.POLL,
            t,
            t + 30 * US,
            group=Group.PULL,
            who=Who.PULLER,
            number=self.owner(queue),
            second=0,
            queue=queue,
            offset=shown.offset[first],
            refs=size,
            first_ref=refs[first],
            node=node,
        )
        return self._store_offsets(record, Group.PULL, queue, shown.offset[last] + 1, t + 60 * US)

    def push(self, record: Record, shown: Shown) -> int:
        """Deliver each message by itself; redeliver refused ones from the group's retry queue."""
        first, size = parts(shown.queue, _READ)
        place = np.arange(len(shown.message)) - np.repeat(first, size)
        refused = self._random.random(len(shown.message)) < 0.005
        t = shown.t + 2 * MS + place * US
        by = {"group": Group.PUSH, "who": Who.PUSHED, "refs": 1}
        record.op(
            F.DELIVER,
            t,
            t + 200 * US,
            type=np.where(refused, Type.FAIL, Type.OK),
            first_ref=record.refer(shown.message, shown.queue, has_offset=1),
            number=self.owner(shown.queue),
            second=1 + place % 16,
            queue=shown.queue,
            **by,
        )
        returned_t, message = t[refused] + 500 * US, shown.message[refused]
        record.entry(returned_t, kind=Kind.MESSAGE, queue=RETRY, message=message)
        again = committed_at(returned_t) + 2 * MS
        record.op(
            F.DELIVER,
            again,
            again + 200 * US,
            first_ref=record.refer(message, RETRY, has_offset=0, reconsume=1),
            number=self.owner(shown.queue[refused]),
            second=17,
            queue=RETRY,
            **by,
        )
        last = first + size - 1
        ends = np.maximum.reduceat(t, first) + 250 * US if len(t) else t
        done = self._store_offsets(
            record, Group.PUSH, shown.queue[last], shown.offset[last] + 1, ends
        )
        return max(done, int(again.max(initial=0)) + MS)

    def _store_offsets(
        self, record: Record, group: Group, queue: Numbers, offset: Numbers, t: Numbers
    ) -> int:
        """Store offsets of the group, queue by queue; return the time of the last one."""
        done = committed_at(t + 200 * US) + 20 * US
        record.op(
            F.COMMIT_OFFSET,
            t,
            done,
            group=group,
            who=Who.KEEPER,
            number=self.owner(queue),
            second=1 + (4 if group is Group.PUSH else 0),
            queue=queue,
            offset=offset,
        )
        record.entry(t + 200 * US, kind=Kind.OFFSET, queue=queue, group=group, told_offset=offset)
        stored = self._stored[group].copy()
        stored[queue] = offset  # the last offset of each queue wins
        self._stored[group] = stored
        return int(done.max(initial=0))

    def query(self, record: Record, shown: Shown, ends: Numbers, now: int) -> int:
        """Query the ends of queues and some keys, without load; return the end time."""
        queue = np.arange(QUEUES)
        t = now + queue * 100 * US
        record.op(
            F.MAX_OFFSET,
            t,
            t + 50 * US,
            group=Group.PULL,
            who=Who.KEEPER,
            number=self.owner(queue),
            second=2,
            queue=queue,
            offset=ends,
        )
        place = np.arange(0, len(shown.message), max(8, len(shown.message) // _QUERIES + 1))
        t = now + MS + np.arange(len(place)) * 100 * US
        record.op(
            F.QUERY,
            t,
            t + 60 * US,
            group=Group.TOOLS,
            who=Who.ASKER,
            number=0,
            second=0,
            key=shown.message[place],
            refs=1,
            first_ref=record.refer(shown.message[place], shown.queue[place], has_offset=1),
        )
        return now + 2 * MS + len(place) * 100 * US

    @staticmethod
    def drain(record: Record, shown: Shown, now: int) -> int:
        """Poll one queue for the final drain; return the time at which the last poll ended."""
        first, size = parts(shown.queue, _DRAINED)
        queue = shown.queue[first]
        t = now + np.arange(len(first)) * 200 * US
        refs = record.refer(shown.message, shown.queue, has_offset=1)
        record.op(
            F.POLL,
            t,
            t + 150 * US,
            group=Group.DRAIN,
            who=Who.DRAINER,
            number=queue,
            second=0,
            queue=queue,
            offset=shown.offset[first],
            refs=size,
            first_ref=refs[first],
            final=1,
            node=0,
        )
        return now + len(first) * 200 * US + MS
