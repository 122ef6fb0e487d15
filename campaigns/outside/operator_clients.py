"""Questions, settings, consumer groups and assignments: what operators and models compare.

Place in the data path: as `feature_clients`.
"""

from __future__ import annotations

from typing import Final

from campaigns.outside.feature_client import GROUP, Feature, queue_name
from campaigns.outside.run_rows import MS, SECOND, Row
from campaigns.outside.virtual_time import Process

__all__ = ["Assigner", "GroupMaker", "Questioner", "Setter"]

SETTING: Final = f"{GROUP} flushInterval"
_NOBODY: Final[Row] = {"broker_group": None}


class Questioner(Feature):
    """Queries what a model has computed before; nobody can know one of the answers."""

    def run(self) -> Process:
        yield 3 * SECOND
        for number in range(4):
            query: Row = {"key": f"the end of queue {number}", "node": self.leader()}
            decision = "calm" if number % 2 else None
            answer: Row = {"status": str(number), "ref": str(number), "decision": decision}
            yield from self.does("ask", **{**queue_name("later"), **query, **answer})
        unknown: Row = {"key": "what nobody knows", "node": self.leader()}
        yield from self.does("ask", status="17", ref=None, **unknown)
        yield from self.does("ask", "info", ref="18", **unknown)


class Setter(Feature):
    """Changes a setting, and sees it changed: at once where it was acknowledged, soon elsewhere."""

    def sets(self, status: str, number: int, type_: str = "ok") -> Process:
        answer: Row = {"key": SETTING, "status": status, "ref": f"set-{number}"}
        yield from self.does("set", type_, node=self.leader(), **answer)

    def gets(self, status: str, number: int, node: str, decision: str | None = None) -> Process:
        answer: Row = {"key": SETTING, "status": status, "ref": f"get-{number}"}
        yield from self.does("get", node=node, decision=decision, **answer)

    def run(self) -> Process:
        yield 2 * SECOND
        yield from self.sets("500", 1)
        yield from self.gets("500", 1, self.leader())
        yield from self.gets("500", 2, self.follower(), "now")
        yield 6 * SECOND
        yield from self.sets("600", 2)
        yield from self.gets("500", 3, self.follower())  # which has not heard of it yet
        yield from self.gets("600", 4, self.leader())
        yield 1200 * MS
        yield from self.gets("600", 5, self.follower())
        yield from self.sets("700", 3, "fail")
        yield from self.gets("600", 6, self.leader(), "now")
        yield from self.sets("-", 4)
        yield from self.gets("-", 7, self.leader())


class GroupMaker(Feature):
    """A subscription group made, changed, deleted with its offsets, and made anew."""

    def makes(self, status: str) -> Process:
        yield from self.does("create_group", status=status, node=self.leader())

    def shows(self, status: str | None) -> Process:
        yield from self.does("group", status=status, node=self.leader())

    def deletes(self, decision: str) -> Process:
        yield from self.does("delete_group", decision=decision, node=self.leader())

    def fetches(self, offset: int | None) -> Process:
        yield from self.does("fetch_offset", offset=offset, **queue_name("slow"))

    def run(self) -> Process:
        yield 2 * SECOND
        yield from self.makes("retries=3")
        yield from self.shows("retries=3")
        yield from self.makes("retries=5")
        yield from self.shows("retries=5")
        yield from self.commits("slow", 2)
        yield from self.fetches(2)
        yield from self.deletes("clean")
        yield from self.shows(None)
        yield from self.fetches(None)
        yield 2 * SECOND
        yield from self.makes("retries=7")
        yield from self.commits("slow", 3)
        yield from self.deletes("keep")
        yield from self.fetches(3)
        yield from self.shows("retries=16")  # what a broker gives a group by itself


class Assigner(Feature):
    """Rounds of assignments: two members, three, and four that share queues."""

    def run(self) -> Process:
        yield 2 * SECOND
        rounds = (
            (1, "AVG", [[0], [1]]),
            (1, "AVG_BY_CIRCLE", [[0], [1], []]),
            (2, "POP_SHARE", [[0], [1], [0], [1]]),
        )
        for number, (share, strategy, queues) in enumerate(rounds):
            answer: Row = {"ref": f"round-{number}", "offset": share, "status": strategy}
            answer |= {"topic": "orders", "node": self.leader()}
            for place, owned in enumerate(queues):
                member = Feature(self.world, f"{self.name}-{place}", self.client_group)
                names = [queue_name("orders", queue) for queue in owned]
                yield from member.does("assignment", assigned=names, **answer)
            yield SECOND
