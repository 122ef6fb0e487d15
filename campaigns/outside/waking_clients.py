"""Polls and pops that are held until a message comes, and a group that filters by tag.

Place in the data path: as `feature_clients`.
"""

from __future__ import annotations

from typing import Final

from campaigns.outside.feature_client import (
    GROUP,
    INVISIBLE,
    Feature,
    group_settings,
    queue_name,
)
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["WAKING_GROUPS", "WAKING_TOPICS", "PopWaker", "TagReader", "Waker"]

WAKING_TOPICS: Final = ("woken", "popwoken", "tagged")
HELD: Final = 2 * SECOND
WAKE_MS: Final = 500
WAKING_GROUPS: Final[Row] = {
    "wakers": group_settings("woken", wake_ms=WAKE_MS),
    "pop-wakers": group_settings("popwoken", wake_ms=WAKE_MS, redelivery_ms=1000),
    "tag-readers": group_settings("tagged", retries_max=2, tags=["red"]),
    "tag-poppers": group_settings("tagged", redelivery_ms=1000, tags=["red"]),
    "tag-hearers": group_settings("tagged", kind="broadcast", tags=["red"]),
    "tag-backers": group_settings("tagged", tags=["red"]),
}


class Waker(Feature):
    """Polls that are held: most until a message is there, one in vain."""

    def holds(self, offset: int) -> Row:
        place: Row = {**queue_name("woken"), "offset": offset, "final": False}
        return self.begin("poll", due=self.now + HELD, **place)

    def run(self) -> Process:
        yield 2500 * MS
        sender = Feature(self.world, "woken-sender", "woken-senders")
        yield from self.assigns("woken")
        for number in range(5):
            row = self.holds(number)
            if number == 2:
                yield HELD + MS
                row |= {"type": "ok", "t_complete": self.now, "messages": []}
                yield MS
                row = self.holds(number)
            yield (300 + 250 * number) * MS
            sent = yield from sender.sends("woken", number)
            yield MS
            shown = {**sent, "origin": "woken"}
            row |= {"type": "ok", "t_complete": self.now, "messages": [shown]}
            yield MS


class PopWaker(Feature):
    """Pops that are held until a message is there, by two members in turn."""

    def run(self) -> Process:
        yield 2500 * MS
        sender = Feature(self.world, "popwoken-sender", "popwoken-senders")
        other = Feature(self.world, "pop-waker-2", self.client_group)
        for number in range(4):
            place: Row = {"broker_group": GROUP, "topic": "popwoken", "queue": None}
            row = self.begin("pop", due=self.now + INVISIBLE, **place)
            yield 600 * MS
            sent = yield from sender.sends("popwoken", number)
            yield from self.hands_out(row, [sent], f"w{number}")
            yield from self.acks("popwoken", [sent], f"w{number}")
            yield 300 * MS
            yield from other.pops("popwoken", [], f"v{number}")
            yield 300 * MS
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from self.pops("popwoken", [], "w9")


class TagReader(Feature):
    """Groups that get what has their tag alone, in every way in which messages come.

    One message was refused, and came once more.
    """

    def run(self) -> Process:
        yield 2 * SECOND
        sender = Feature(self.world, "tag-sender", "tag-senders")
        sent = []
        for number, tag in enumerate(("red", "blue", "red", "green", "red", "red", "blue")):
            sent.append((yield from sender.sends("tagged", number, tag=tag)))
        yield from self.assigns("tagged")
        wanted = [each for each in sent if each["tag"] == "red"]
        for each in wanted[:2]:
            yield from self.delivers([each])
        yield from self.delivers([wanted[2]], "fail")
        again = yield from self.comes_again(wanted[2], "%RETRY%tag-readers")
        yield from self.delivers([again])
        yield from self.delivers([wanted[3]])
        member = Feature(self.world, "tag-poller", self.client_group)
        place: Row = {"topic": "tagged", "queue": 0, "offset": 0, "final": False}
        yield from member.assigns("tagged")
        yield from member.does("poll", messages=wanted[:2], **place)
        yield from member.does("poll", messages=wanted[2:], **{**place, "offset": 3})
        yield from self._of_other_groups(wanted)

    def _of_other_groups(self, wanted: list[Row]) -> Process:
        popper = Feature(self.world, "tag-popper", "tag-poppers")
        yield from popper.pops("tagged", wanted, "t1")
        yield from popper.acks("tagged", wanted, "t1")
        hearer = Feature(self.world, "tag-hearer", "tag-hearers")
        yield from hearer.assigns("tagged")
        backer = Feature(self.world, "tag-backer", "tag-backers")
        yield from backer.assigns("tagged")
        for each in wanted:
            yield from hearer.delivers([each])
            yield from backer.delivers([each])
        yield from hearer.assigns(None)
        tool = Feature(self.world, "tag-tool", "tag-backers")
        yield from tool.does("reset", offset=1, **queue_name("tagged"))
        for each in wanted[1:]:
            yield from backer.delivers([each])
        yield from backer.does("reset", offset=3, **queue_name("tagged"))
        for each in wanted[2:]:
            yield from backer.delivers([each])
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from popper.pops("tagged", [], "t9")
