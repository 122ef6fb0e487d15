"""Topics, what name servers say of them, a user, searches: what an administrator does.

Place in the data path: as `feature_clients`.
"""

from __future__ import annotations

from typing import Final

from campaigns.outside.client_world import message
from campaigns.outside.feature_client import GROUP, Feature, group_settings, queue_name
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["GONE", "MANAGED_GROUPS", "Manager", "TopicMaker"]

GONE: Final = "gone"
PERM: Final = "perm"
FRESH: Final = "fresh"
MANAGED_GROUPS: Final[Row] = {"perm-readers": group_settings(PERM, at_least_once=False)}


class Manager(Feature):
    """Topics made, deleted and forbidden, and what name servers say of them; a user; searches."""

    def changes(self, f: str, topic: str, perm: str = "6", type_: str = "ok") -> Process:
        made: Row = {"node": self.leader()}
        if f == "create_topic":
            made |= {"assigned": self.queue_names(topic), "status": perm}
        return (yield from self.does(f, type_, topic=topic, **made))

    def queue_names(self, topic: str) -> list[Row]:
        return [queue_name(topic, queue) for queue in (0, 1)]

    def views(self, topic: str, perm: str | None, node: str | None = None) -> Process:
        """What a name server says, or the leader itself."""
        leader = self.leader()
        others = sorted(set(self.broker.group.voters) - {leader})
        shown: Row = {"node": node or leader, "key": None if node else "owner"}
        shown |= {"assigned": [] if perm is None else self.queue_names(topic), "status": perm}
        shown["ref"] = None if perm is None else " ".join([leader, *others])
        return (yield from self.does("route", topic=topic, **shown))

    def queries_all(self, topic: str, perm: str | None) -> Process:
        yield from self.views(topic, perm)
        yield 800 * MS
        for server in ("ns-0", "ns-1"):
            yield from self.views(topic, perm, server)
        yield from self.views(topic, perm)

    def run(self) -> Process:
        yield SECOND
        reader = Feature(self.world, "perm-reader", "perm-readers")
        sender = Feature(self.world, "gone-sender", "gone-senders")
        yield from self.changes("create_topic", GONE)
        for number in range(3):
            yield from sender.sends(GONE, number, ref=GONE)
        yield from self.changes("delete_topic", GONE)
        for server in ("ns-0", "ns-1"):
            forgot: Row = {"topic": GONE, "node": server, "broker_group": None}
            yield from self.does("delete_topic", **forgot)
        yield 6 * SECOND
        yield from self.changes("create_topic", PERM, "2")
        place: Row = {"topic": PERM, "queue": 0, "offset": 0, "node": self.leader()}
        yield from reader.does("poll", "fail", status="16", **place)
        yield from self.changes("create_topic", PERM, "4")
        yield from reader.assigns(PERM)
        yield from reader.does("poll", messages=[], final=False, **place)
        yield from self.queries_all(PERM, "4")
        yield from self._user()
        yield from self._searches()
        yield self.world.times.heal_end + 200 * MS - self.now
        yield from self.queries_all(PERM, "4")
        yield from self.queries_all(GONE, None)

    def _user(self) -> Process:
        user: Row = {"key": "someone", "topic": "orders"}
        sender = Feature(self.world, "someone", "someones")
        yield from self.does("account", ref="grant", decision="allow", **user)
        yield from sender.sends("orders", 90, ref="someone")
        yield from self.does("account", ref="revoke", decision="deny", **user)
        made = message("someone.orders-91", topic="orders", queue=0, broker_group=GROUP)
        refused: Row = {"topic": "orders", "queue": 0, "messages": [made], "ref": "someone"}
        yield from sender.does("send", "fail", status="16", **refused)

    def _searches(self) -> Process:
        stored_ms = [self.broker.stored_ms["back", offset] for offset in range(6)]
        place: Row = {"topic": "back", "queue": 0}
        yield from self.does("search", ref="first", from_ms=stored_ms[2], offset=2, **place)
        yield from self.does("search", ref="last", from_ms=stored_ms[3], offset=3, **place)
        yield from self.does("search", ref="earliest", from_ms=stored_ms[0], **place)
        found = self.broker.found["back", 1]
        columns: Row = {"key": found["keys"][0], "from_ms": stored_ms[1], "to_ms": stored_ms[1]}
        shown = [{**found, "topic": "back", "queue": 0, "offset": 1}]
        range_place: Row = {"topic": "back", "queue": None, "messages": shown}
        yield from self.does("search", ref="range", **columns, **range_place)


class TopicMaker(Manager):
    """A topic whose name servers know of each change as soon as it is acknowledged."""

    def run(self) -> Process:
        yield 2 * SECOND
        for perm in ("6", "2", "4"):
            yield from self.changes("create_topic", FRESH, perm)
            for server in ("ns-0", "ns-1"):
                yield from self.views(FRESH, perm, server)
            yield 3 * SECOND
