"""Clients of further features in a model run: delays, POP, locks, retries, resets, requests.

Place in the data path: one process per feature beside the clients of every run, in topics of its
own; `feature_cast` lists them. A feature's history is short and always the same: what is planted
into it are the anomalies.

Invariants: as the page of the format says of a clean run; what is sent here is stored by the
model's broker, so that logs, traces and queues show it, too.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.client_world import message
from campaigns.outside.feature_client import (
    GROUP,
    WHEEL,
    Feature,
    group_settings,
    queue_name,
)
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = [
    "SIMPLE_GROUPS",
    "SIMPLE_TOPICS",
    "Backer",
    "Delayer",
    "Hearer",
    "Locker",
    "OrderedPopper",
    "Popper",
    "Refuser",
    "Requester",
]

SIMPLE_TOPICS: Final = ("later", "popped", "inorder", "locked", "again", "told", "back", "asked")
SIMPLE_GROUPS: Final[Row] = {
    "later-readers": group_settings("later"),
    "poppers": group_settings("popped", retries_max=1, redelivery_ms=1000),
    "in-order": group_settings("inorder", ordered=True, redelivery_ms=1000),
    "lockers": group_settings("locked", ordered=True, exclusive=True),
    "refusers": group_settings("again", at_least_once=False, retries_max=1),
    "hearers": group_settings("told", kind="broadcast"),
    "backers": group_settings("back", at_least_once=False),
    "answerers": group_settings("asked"),
}


class Delayer(Feature):
    """Delayed messages, of which one is recalled and one can't be."""

    def run(self) -> Process:
        yield SECOND
        reader = Feature(self.world, "later-reader", "later-readers")
        yield from reader.assigns("later")
        for number in range(6):
            value = f"{self.name}.later-{number}"
            made = message(value, topic="later", queue=0, broker_group=GROUP)
            self.world.sent.append(made)
            due = self.now + (400 + 50 * number) * MS
            row = self.begin(
                "delay", broker_group=GROUP, topic="later", queue=0, messages=[dict(made)], due=due
            )
            yield from self.stores(made, WHEEL)
            yield MS
            row |= {"type": "ok", "t_complete": self.now}
            if number == 2:
                place: Row = {"topic": "later", "queue": 0, "ref": value}
                yield from self.does("recall", "ok", **place)
                continue
            yield due - self.now + 3 * MS
            offset = yield from self.stores(made, "later")
            if number == 4:
                yield from self.does("recall", "fail", topic="later", queue=0, ref=value)
            shown = [{**made, "offset": offset}]
            place = {"topic": "later", "queue": 0, "offset": offset}
            yield from reader.does("poll", messages=shown, final=False, **place)


class Popper(Feature):
    """Messages that are popped: most are acknowledged, some come again, one is a dead letter."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "pop-sender", "pop-senders")
        sent = yield from sender.sends_all("popped", 6)
        yield from self.pops("popped", sent[:3], "r1")
        yield from self.acks("popped", sent[:2], "r1")
        yield from self.pops("popped", sent[3:5], "r2")
        changed: Row = {"ref": "r2", "key": "r3", "due": self.now + 5 * SECOND}
        yield from self.changes_time("popped", dict(sent[4]), **changed)
        yield from self.acks("popped", [sent[4]], "r3")
        yield 3 * SECOND
        retry = "%RETRY%poppers_popped"
        one = yield from self.comes_again(sent[2], retry)
        other = yield from self.comes_again(sent[3], retry)
        yield 9 * SECOND - self.now  # so that, with retention, what they stand for is soon taken
        yield from self.pops("popped", [one, other], "r4")
        yield from self.acks("popped", [other], "r4")
        yield from self.pops("popped", [sent[5]], "r5")
        yield from self.acks("popped", [sent[5]], "r5")
        yield 3 * SECOND
        dead = yield from self.comes_again(one, "%DLQ%poppers")
        place: Row = {"topic": dead["topic"], "queue": 0, "offset": dead["offset"]}
        yield from self.does("poll", messages=[dead], client_group="dead-readers", **place)
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from self.pops("popped", [], "r6")


class OrderedPopper(Feature):
    """Pops one message after the other, in order."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "order-sender", "pop-senders")
        sent = yield from sender.sends_all("inorder", 4)
        for number, each in enumerate(sent):
            yield from self.pops("inorder", [each], f"q{number}")
            yield from self.acks("inorder", [each], f"q{number}")
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from self.pops("inorder", [], "q9")


class Locker(Feature):
    """A queue that one member has after the other, under a lock."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "lock-sender", "lock-senders")
        sent = yield from sender.sends_all("locked", 6)
        other = Feature(self.world, "locker-2", self.client_group)
        yield from self.assigns("locked")
        for each in sent[:3]:
            yield from self.delivers([each])
        yield from self.assigns(None)
        yield from other.assigns("locked")
        for each in sent[3:]:
            yield from other.delivers([each])


class Refuser(Feature):
    """Refuses: one message comes once more, another ends among the dead letters."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "again-sender", "again-senders")
        sent = yield from sender.sends_all("again", 3)
        yield from self.assigns("again")
        yield from self.delivers([sent[0]])
        for each in sent[1:]:
            yield from self.delivers([each], "fail")
        for each in sent[1:]:
            again = {**each, "reconsume": 1}
            retry = "%RETRY%refusers"
            again |= {"topic": retry, "offset": (yield from self.stores(again, retry))}
            yield from self.delivers([again], "ok" if each is sent[1] else "fail")
        yield from self.stores({**sent[2], "reconsume": 2}, "%DLQ%refusers")


class Hearer(Feature):
    """Two broadcast members that hear everything."""

    def run(self) -> Process:
        yield SECOND
        other = Feature(self.world, "hearer-2", self.client_group)
        members: tuple[Feature, ...] = (self, other)
        for member in members:
            yield from member.assigns("told")
        sender = Feature(self.world, "told-sender", "told-senders")
        for number in range(5):
            sent = yield from sender.sends("told", number)
            for member in members:
                yield from member.delivers([sent])
        yield self.world.times.drain_end - self.now
        for member in members:  # they leave when all is over, and nobody answers any more
            member.begin("assign", broker_group=None, assigned=[])


class Backer(Feature):
    """A group that an administrator sends to an offset, to a time and to the end; a seek."""

    def resets(self, offset: int, **fields: Any) -> Process:
        tool = Feature(self.world, f"back-tool-{self.now}", self.client_group)
        yield from tool.does("reset", topic="back", queue=0, offset=offset, **fields)

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "back-sender", "back-senders")
        sent, stored_ms = [], []
        for number in range(6):
            yield 10 * MS
            sent.append((yield from sender.sends("back", number)))
            stored_ms.append(self.broker.stored_ms["back", sent[-1]["offset"]])
        yield from self.assigns("back")
        for each in sent:
            yield from self.delivers([each])
        yield from self.commits("back", 6)
        yield from self.resets(3, from_ms=stored_ms[3], ref="force")
        yield from self.resets(3, from_ms=-1, ref="no-force")
        yield from self.resets(6, from_ms=-1, ref="force")
        yield from self.resets(2)
        for each in sent[2:]:
            yield from self.delivers([each])
        yield from self.does("reset", topic="back", queue=0, offset=4)
        for each in sent[4:]:
            yield from self.delivers([each])


class Requester(Feature):
    """Requests: three are answered, one is answered too late, and one asker crashes meanwhile."""

    def requests(self, number: int) -> Process:
        """Stores a request; answers its row, which is under way, and the message at its place."""
        made = message(f"{self.name}.asked-{number}", topic="asked", queue=0, broker_group=GROUP)
        self.world.sent.append(made)
        row = self.begin("request", **queue_name("asked"), messages=[dict(made)])
        offset = yield from self.stores(made, "asked")
        return row, {**made, "offset": offset}

    def answers(self, stored: Row, answer: str, type_: str = "ok") -> Process:
        columns: Row = {"topic": "asked", "key": stored["value"], "ref": answer}
        yield from self.does("reply", type_, **columns)

    def run(self) -> Process:
        yield SECOND
        answerer = Requester(self.world, "answerer", "answerers")
        yield from answerer.assigns("asked")
        for number in range(3):
            row, stored = yield from self.requests(number)
            yield from answerer.delivers([stored], ref=f"answer-{number}")
            yield from answerer.answers(stored, f"answer-{number}")
            row |= {"type": "ok", "t_complete": self.now, "ref": f"answer-{number}"}
        row, stored = yield from self.requests(3)
        yield SECOND
        row |= {"type": "info", "t_complete": self.now, "status": "NO_REPLY"}
        yield MS
        yield from answerer.delivers([stored], ref="answer-3")
        yield from answerer.answers(stored, "answer-3")
        crashed = Requester(self.world, "asker-2", self.client_group)
        row, stored = yield from crashed.requests(4)
        yield from answerer.delivers([stored], ref="answer-4")
        row |= {"type": "info", "t_complete": self.now, "status": "GONE"}
        yield MS
        yield from answerer.answers(stored, "answer-4", "fail")
