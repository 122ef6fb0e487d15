"""A client of one feature: its operations one after the other, and what they leave in the log.

Place in the data path: between `client_world` and the modules of single features
(`feature_clients`, `waking_clients`, `retrying_clients`, `managing_clients`, `operator_clients`).

Invariants: all of it goes to one broker group and, but where said, to one queue; what came shows
the topic to which it had been sent.

Written from docs/RUN_FORMAT.md and docs/FORMATS.md alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from campaigns.outside.broker_model import Broker, of_message, record
from campaigns.outside.client_world import Client, World, message
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["GROUP", "INVISIBLE", "PAUSE", "WHEEL", "Feature", "group_settings", "queue_name"]

GROUP: Final = "broker-a"
WHEEL: Final = "rmq_sys_wheel_timer"
PAUSE: Final = MS // 10
INVISIBLE: Final = 2 * SECOND
_SHOWING: Final = frozenset({"poll", "deliver", "pop", "query", "search"})


def group_settings(topic: str, *, at_least_once: bool = True, **more: Any) -> Row:
    """A row of the manifest's consumer_groups."""
    row: Row = {"kind": "cluster", "at_least_once": at_least_once, "ordered": False}
    return {**row, "topics": [topic], "rebalance_ms": 5000, **more}


def queue_name(topic: str, queue: int = 0) -> Row:
    return {"broker_group": GROUP, "topic": topic, "queue": queue}


class Feature(Client):
    """A client of one feature. Everything goes to one broker group and one queue."""

    def __init__(self, world: World, name: str, client_group: str) -> None:
        super().__init__(world, name, client_group)
        self.broker: Broker = world.brokers[GROUP]

    def restarts(self) -> None:
        """Another process of the same client, as after a crash or a start."""
        self._successors += 1
        self.process = f"{self.name}.{self._successors}"

    def leader(self) -> str:
        leader = self.broker.group.leader()
        assert leader is not None
        return leader.name

    def follower(self) -> str:
        return next(name for name in self.broker.group.voters if name != self.leader())

    def begin(self, f: str, **fields: Any) -> Row:
        """Begins an operation; what it shows has the topic to which it was sent."""
        if f in _SHOWING and fields.get("messages"):
            of = {made["value"]: made["topic"] for made in self.world.sent}
            messages = [{"origin": of[each["value"]], **each} for each in fields["messages"]]
            fields = {**fields, "messages": messages}
        return super().begin(f, **fields)

    def does(self, f: str, type_: str = "ok", ms: int = 2, **fields: Any) -> Process:
        """An operation that takes so long; answers its row."""
        row = self.begin(f, **{"broker_group": GROUP, **fields})
        yield ms * MS
        row |= {"type": type_, "t_complete": self.now}
        yield PAUSE  # what begins in the same moment is not behind it
        return row

    def writes(self, records: list[Row]) -> Process:
        """Has the leader write an entry of `records`; returns once it is committed."""
        while (leader := self.broker.group.leader()) is None:
            yield 5 * MS
        yield self.broker.add(leader, records)[1]

    def stores(self, made: Row, topic: str) -> Process:
        """Stores a record of a message; answers the offset."""
        row = of_message("message", made, topic, 0)
        yield from self.writes([row])
        return row["queue_offset"]

    def sends(
        self, topic: str, number: int, f: str = "send", tag: str | None = None, **fields: Any
    ) -> Process:
        """Sends a message that is stored at once; answers the message at its place."""
        value = f"{self.name}.{topic}-{number}"
        keys = [f"k-{value}"]
        made = message(value, topic=topic, queue=0, broker_group=GROUP, keys=keys, tag=tag)
        self.world.sent.append(made)
        row = self.begin(
            f, broker_group=GROUP, topic=topic, queue=0, messages=[dict(made)], **fields
        )
        yield MS
        offset = yield from self.stores(made, topic)
        yield MS
        if f == "send":
            row["messages"][0]["offset"] = offset
        row |= {"type": "ok", "t_complete": self.now}
        yield PAUSE
        return {**made, "offset": offset}

    def sends_all(self, topic: str, count: int) -> Process:
        """Sends so many messages; answers them at their places."""
        sent = []
        for number in range(count):
            made = yield from self.sends(topic, number)
            sent.append(made)
        return sent

    def comes_again(self, shown: Row, topic: str) -> Process:
        """Stores a message once more on a retry or dead-letter topic; answers it there."""
        again = {**shown, "reconsume": shown["reconsume"] + 1, "offset": None}
        offset = yield from self.stores(again, topic)
        return {**again, "topic": topic, "offset": offset}

    def delivers(self, shown: list[Row], type_: str = "ok", **fields: Any) -> Process:
        messages = [dict(each) for each in shown]
        place: Row = {"topic": messages[0]["topic"], "queue": 0}
        return (yield from self.does("deliver", type_, messages=messages, **place, **fields))

    def assigns(self, topic: str | None) -> Process:
        owned = [] if topic is None else [queue_name(topic)]
        yield from self.does("assign", broker_group=None, assigned=owned)

    def commits(self, topic: str, offset: int) -> Process:
        """Commits an offset of its group; answers the row once that is stored."""
        row = self.begin("commit_offset", offset=offset, **queue_name(topic))
        place: Row = {"topic": topic, "queue": 0, "queue_offset": offset}
        yield from self.writes([record("offset", client_group=self.client_group, **place)])
        yield MS
        row |= {"type": "ok", "t_complete": self.now}
        yield PAUSE
        return row

    # -- POP

    def hands_out(self, row: Row, shown: Sequence[Row], ref: str) -> Process:
        """Answers a pop that is under way: its handouts are in the log before."""
        yield from self._notes("pop", shown)
        of = {made["value"]: made["topic"] for made in self.world.sent}
        row["messages"] = [{"origin": of[each["value"]], **each} for each in shown]
        row |= {"type": "ok", "t_complete": self.now, "ref": ref if shown else None}
        yield PAUSE

    def pops(self, topic: str, shown: list[Row], ref: str) -> Process:
        row = self.begin(
            "pop", broker_group=GROUP, topic=topic, queue=None, due=self.now + INVISIBLE
        )
        yield MS
        yield from self.hands_out(row, shown, ref)
        return row

    def acks(self, topic: str, shown: list[Row], ref: str) -> Process:
        columns: Row = {"topic": topic, "messages": [dict(each) for each in shown], "ref": ref}
        row = self.begin("ack", broker_group=GROUP, **columns)
        yield from self._notes("ack", shown)
        row |= {"type": "ok", "t_complete": self.now}
        yield PAUSE

    def changes_time(self, topic: str, shown: Row, **fields: Any) -> Process:
        row = self.begin("change", broker_group=GROUP, topic=topic, messages=[shown], **fields)
        yield from self._notes("change", [shown])
        row |= {"type": "ok", "t_complete": self.now}
        yield PAUSE

    def _notes(self, kind: str, shown: Sequence[Row]) -> Process:
        """Writes what POP writes: one entry, a record for each message at its place."""
        if shown:
            yield from self.writes(
                [
                    record(
                        kind,
                        client_group=self.client_group,
                        topic=each["topic"],
                        queue=each["queue"],
                        queue_offset=each["offset"],
                    )
                    for each in shown
                ]
            )
        yield MS
