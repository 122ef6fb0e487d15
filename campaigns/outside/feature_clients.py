"""Clients of further features in a model run: delays, POP, locks, retries, resets, topics, routes.

Place in the data path: one process per feature beside the clients of every run, in topics of its
own; `model_cluster` starts them where its options say so. A feature's history is short and always
the same: what is planted into it are the anomalies.

Invariants: as the page of the format says of a clean run; what is sent here is stored by the
model's broker, so that logs, traces and queues show it, too.

Written from docs/RUN_FORMAT.md, docs/RULES.md and docs/FORMATS.md alone.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.broker_model import Broker, of_message
from campaigns.outside.client_world import Client, World, message
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["FEATURE_GROUPS", "FEATURE_TOPICS", "MANIFEST", "feature_clients"]

GROUP: Final = "broker-a"
WHEEL: Final = "rmq_sys_wheel_timer"
FEATURE_TOPICS: Final = ("later", "popped", "inorder", "locked", "again", "told", "back", "asked")
FEATURE_TOPICS_GONE: Final = "gone"
PERM: Final = "perm"
PAUSE: Final = MS // 10
INVISIBLE: Final = 2 * SECOND
MANIFEST: Final[Row] = {
    "delays": {"early_ms": 0, "recall_ms": 0, "lost_ms": 500},
    "routes": {"expire_ms": 500, "gone_ms": 500},
}


def _group(topic: str, *, at_least_once: bool = True, **more: Any) -> Row:
    told: Row = {"kind": "cluster", "at_least_once": at_least_once, "ordered": False}
    return {**told, "topics": [topic], "rebalance_ms": 5000, **more}


FEATURE_GROUPS: Final[Row] = {
    "later-readers": _group("later"),
    "poppers": _group("popped", retries_max=1, redelivery_ms=1000),
    "in-order": _group("inorder", ordered=True, redelivery_ms=1000),
    "lockers": _group("locked", ordered=True, exclusive=True),
    "refusers": _group("again", at_least_once=False, retries_max=1),
    "hearers": _group("told", kind="broadcast"),
    "backers": _group("back", at_least_once=False),
    "answerers": _group("asked"),
    "perm-readers": _group(PERM, at_least_once=False),
}


class Feature(Client):
    """A client of one feature. Everything goes to one broker group and one queue."""

    def __init__(self, world: World, name: str, client_group: str) -> None:
        super().__init__(world, name, client_group)
        self.broker: Broker = world.brokers[GROUP]

    def does(self, f: str, type_: str = "ok", ms: int = 2, **fields: Any) -> Process:
        """An operation that takes so long; answers its row."""
        as_process = fields.pop("process", None)
        row = self.begin(f, **{"broker_group": GROUP, **fields})
        if as_process is not None:
            row["process"] = as_process
        yield ms * MS
        row |= {"type": type_, "t_complete": self.now}
        yield PAUSE  # what begins in the same moment is not behind it
        return row

    def stores(self, made: Row, topic: str) -> Process:
        """Stores a record of a message; answers the offset."""
        while (leader := self.broker.group.leader()) is None:
            yield 5 * MS
        row = of_message("message", made, topic, 0)
        yield self.broker.add(leader, [row])[1]
        return row["queue_offset"]

    def sends(self, topic: str, number: int, f: str = "send", **fields: Any) -> Process:
        """Sends a message that is stored at once; answers the message at its place."""
        value = f"{self.name}.{topic}-{number}"
        made = message(value, topic=topic, queue=0, broker_group=GROUP, keys=[f"k-{value}"])
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

    def delivers(self, shown: list[Row], type_: str = "ok", **fields: Any) -> Process:
        told = [dict(each) for each in shown]
        place: Row = {"topic": told[0]["topic"], "queue": 0}
        return (yield from self.does("deliver", type_, messages=told, **place, **fields))

    def assigns(self, topic: str | None) -> Process:
        owned = [] if topic is None else [{"broker_group": GROUP, "topic": topic, "queue": 0}]
        yield from self.does("assign", broker_group=None, assigned=owned)


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

    def pops(self, shown: list[Row], ref: str) -> Process:
        told = [dict(each) for each in shown]
        return (
            yield from self.does(
                "pop",
                topic="popped",
                queue=None,
                messages=told,
                ref=ref if told else None,
                due=self.now + INVISIBLE,
            )
        )

    def acks(self, shown: list[Row], ref: str) -> Process:
        yield from self.does("ack", topic="popped", messages=[dict(m) for m in shown], ref=ref)

    def comes_again(self, shown: Row, topic: str = "%RETRY%poppers_popped") -> Process:
        again = {**shown, "reconsume": shown["reconsume"] + 1, "offset": None}
        offset = yield from self.stores(again, topic)
        return {**again, "topic": topic, "offset": offset}

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "pop-sender", "pop-senders")
        sent = yield from sender.sends_all("popped", 6)
        yield from self.pops(sent[:3], "r1")
        yield from self.acks(sent[:2], "r1")
        yield from self.pops(sent[3:5], "r2")
        changed: Row = {"ref": "r2", "key": "r3", "due": self.now + 5 * SECOND}
        yield from self.does("change", topic="popped", messages=[dict(sent[4])], **changed)
        yield from self.acks([sent[4]], "r3")
        yield 3 * SECOND
        one = yield from self.comes_again(sent[2])
        other = yield from self.comes_again(sent[3])
        yield from self.pops([one, other], "r4")
        yield from self.acks([other], "r4")
        yield from self.pops([sent[5]], "r5")
        yield from self.acks([sent[5]], "r5")
        yield 3 * SECOND
        dead = yield from self.comes_again(one, "%DLQ%poppers")
        place: Row = {"topic": dead["topic"], "queue": 0, "offset": dead["offset"]}
        yield from self.does("poll", messages=[dead], client_group="dead-readers", **place)
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from self.pops([], "r6")


class OrderedPopper(Feature):
    """Pops one message after the other, in order."""

    def run(self) -> Process:
        yield SECOND
        sender = Feature(self.world, "order-sender", "pop-senders")
        sent = yield from sender.sends_all("inorder", 4)
        for number, each in enumerate(sent):
            place: Row = {"topic": "inorder", "ref": f"q{number}", "messages": [dict(each)]}
            yield from self.does("pop", queue=None, due=self.now + INVISIBLE, **place)
            yield from self.does("ack", **place)
        yield self.world.times.load_end + 2 * SECOND - self.now
        yield from self.does(
            "pop", topic="inorder", queue=None, messages=[], due=self.now + INVISIBLE
        )


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
        commit: Row = {"topic": "back", "queue": 0}
        leader = self.broker.group.leader()
        assert leader is not None
        row = self.begin("commit_offset", broker_group=GROUP, offset=6, **commit)
        yield self.broker.commit_offset(leader, self.client_group, "back", 0, 6)
        row |= {"type": "ok", "t_complete": self.now + MS}
        yield 2 * MS
        yield from self.resets(3, from_ms=stored_ms[3], ref="force")
        yield from self.resets(3, from_ms=-1, ref="no-force")
        yield from self.resets(6, from_ms=-1, ref="force")
        yield from self.resets(2)
        for each in sent[2:]:
            yield from self.delivers([each])
        yield from self.does("reset", topic="back", queue=0, offset=4)
        for each in sent[4:]:
            yield from self.delivers([each])


class Asker(Feature):
    """Requests that are answered."""

    def run(self) -> Process:
        yield SECOND
        answerer = Feature(self.world, "answerer", "answerers")
        yield from answerer.assigns("asked")
        for number in range(3):
            value = f"{self.name}.asked-{number}"
            made = message(value, topic="asked", queue=0, broker_group=GROUP)
            self.world.sent.append(made)
            row = self.begin(
                "request", broker_group=GROUP, topic="asked", queue=0, messages=[dict(made)]
            )
            offset = yield from self.stores(made, "asked")
            yield from answerer.delivers([{**made, "offset": offset}], ref=f"answer-{number}")
            yield MS
            row |= {"type": "ok", "t_complete": self.now, "ref": f"answer-{number}"}


class Manager(Feature):
    """Topics made, deleted and forbidden, and what name servers say of them; a user; searches."""

    def changes(self, f: str, topic: str, perm: str = "6", type_: str = "ok") -> Process:
        made: Row = {"node": self.leader()}
        if f == "create_topic":
            made |= {"assigned": self.queue_names(topic), "status": perm}
        return (yield from self.does(f, type_, topic=topic, **made))

    def queue_names(self, topic: str) -> list[Row]:
        return [{"broker_group": GROUP, "topic": topic, "queue": queue} for queue in (0, 1)]

    def leader(self) -> str:
        leader = self.broker.group.leader()
        assert leader is not None
        return leader.name

    def views(self, topic: str, perm: str | None, node: str | None = None) -> Process:
        """What a name server says, or the leader itself."""
        leader = self.leader()
        others = sorted(set(self.broker.group.voters) - {leader})
        shown: Row = {"node": node or leader, "key": None if node else "owner"}
        shown |= {"assigned": [] if perm is None else self.queue_names(topic), "status": perm}
        shown["ref"] = None if perm is None else " ".join([leader, *others])
        return (yield from self.does("route", topic=topic, **shown))

    def asks_all(self, topic: str, perm: str | None) -> Process:
        yield from self.views(topic, perm)
        yield 800 * MS
        for server in ("ns-0", "ns-1"):
            yield from self.views(topic, perm, server)
        yield from self.views(topic, perm)

    def run(self) -> Process:
        yield SECOND
        reader = Feature(self.world, "perm-reader", "perm-readers")
        sender = Feature(self.world, "gone-sender", "gone-senders")
        yield from self.changes("create_topic", FEATURE_TOPICS_GONE)
        for number in range(3):
            yield from sender.sends(FEATURE_TOPICS_GONE, number, ref=FEATURE_TOPICS_GONE)
        yield from self.changes("delete_topic", FEATURE_TOPICS_GONE)
        for server in ("ns-0", "ns-1"):
            forgot: Row = {"topic": FEATURE_TOPICS_GONE, "node": server, "broker_group": None}
            yield from self.does("delete_topic", **forgot)
        yield 6 * SECOND
        yield from self.changes("create_topic", PERM, "2")
        place: Row = {"topic": PERM, "queue": 0, "offset": 0, "node": self.leader()}
        yield from reader.does("poll", "fail", status="16", **place)
        yield from self.changes("create_topic", PERM, "4")
        yield from reader.assigns(PERM)
        yield from reader.does("poll", messages=[], final=False, **place)
        yield from self.asks_all(PERM, "4")
        yield from self._user()
        yield from self._searches()
        yield self.world.times.heal_end + 200 * MS - self.now
        yield from self.asks_all(PERM, "4")
        yield from self.asks_all(FEATURE_TOPICS_GONE, None)

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
        asked: Row = {"key": found["keys"][0], "from_ms": stored_ms[1], "to_ms": stored_ms[1]}
        shown = [{**found, "topic": "back", "queue": 0, "offset": 1}]
        range_place: Row = {"topic": "back", "queue": None, "messages": shown}
        yield from self.does("search", ref="range", **asked, **range_place)


def feature_clients(world: World) -> list[Feature]:
    """The clients of all features, one process each."""
    return [
        Delayer(world, "delayer", "delayers"),
        Popper(world, "popper", "poppers"),
        OrderedPopper(world, "ordered-popper", "in-order"),
        Locker(world, "locker-1", "lockers"),
        Refuser(world, "refuser", "refusers"),
        Hearer(world, "hearer-1", "hearers"),
        Backer(world, "backer", "backers"),
        Asker(world, "asker", "askers"),
        Manager(world, "manager", "tools"),
    ]
