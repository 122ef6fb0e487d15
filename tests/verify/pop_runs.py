"""A synthetic run in which two groups also pop a topic of their own, one of them in order.

Times are short: a message is invisible for 200 ms, and has to come again within 100. `Pops` has
the steps; a script of a run calls them while the little cluster lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.verify.synthetic import JOBS, MS, Rec, Row, SyntheticRun

__all__ = ["INVISIBLE_MS", "Pops", "Script", "popped_run"]

INVISIBLE_MS = 200
RETRIES_MAX = 2
_RETRY = f"%RETRY%popper_{JOBS}"
_DEAD = "%DLQ%popper"


class Pops:
    """The steps of POP in one run."""

    def __init__(self, run: SyntheticRun) -> None:
        self.run = run
        self._first: dict[str, Rec] = {}
        self._latest: dict[str, Rec] = {}

    def name(self, value: str) -> str:
        return f"{self.run.name}.{value}"

    def send(self, *values: str) -> None:
        for value in values:
            named = self.name(value)
            message = self.run.message(named, 0, keys=[f"key-{named}"], topic=JOBS)
            rec = Rec("message", JOBS, 0, named, message["uniq_key"], message["keys"], tags="a")
            self.run.op(
                "p9", "send", topic=JOBS, queue=0, messages=[message], during=self._store(rec)
            )
            message["offset"] = rec.queue_offset
            self._first[value] = self._latest[value] = rec

    def _store(self, rec: Rec) -> Callable[[Row], None]:
        def store(row: Row) -> None:
            rec.digest = row["messages"][0]["digest"]
            self.run.append([rec])

        return store

    def come_again(self, value: str, reconsume: int, topic: str = _RETRY) -> None:
        """The time is over: the message is stored for another try."""
        first = self._first[value]
        rec = Rec("message", topic, 0, first.value, first.uniq_key, first.keys, tags="a")
        rec.digest, rec.reconsume = first.digest, reconsume
        self.run.append([rec])
        if topic == _RETRY:
            self._latest[value] = rec

    def die(self, value: str, reconsume: int = RETRIES_MAX + 1) -> None:
        self.come_again(value, reconsume, _DEAD)

    def pop(
        self,
        process: str,
        *values: str,
        in_order: bool = False,
        ms: int = INVISIBLE_MS,
        outcome: str = "ok",
        held_ms: int = 2,
    ) -> Row:
        recs = self._first if in_order else self._latest
        row = self.run.op(
            process,
            "pop",
            outcome,
            held_ms,
            client_group="porder" if in_order else "popper",
            topic=JOBS,
            queue=None,
            messages=[self.run.shown(recs[value]) for value in values],
            during=self._stored("pop") if values and outcome == "ok" else None,
        )
        if outcome != "ok":
            row["messages"] = None
        row |= {"due": row["t_invoke"] + ms * MS, "ref": f"{row['process']}/{row['t_invoke']}"}
        return row

    def ack(self, popped: Row, *values: str, outcome: str = "ok", ref: str | None = None) -> Row:
        """Acknowledge messages of a pop or a change: in one request."""
        return self.run.op(
            self._process(popped),
            "ack",
            outcome,
            client_group=popped["client_group"],
            topic=JOBS,
            messages=self._of(popped, values),
            ref=ref or self._receipt(popped),
            during=self._stored("ack"),
        )

    def change(self, popped: Row, value: str, ms: int, outcome: str = "ok") -> Row:
        row = self.run.op(
            self._process(popped),
            "change",
            outcome,
            client_group=popped["client_group"],
            topic=JOBS,
            messages=self._of(popped, [value]),
            ref=self._receipt(popped),
            during=self._stored("change") if outcome == "ok" else None,
        )
        row["due"] = row["t_invoke"] + ms * MS
        if outcome == "ok":
            row["key"] = f"{row['ref']}+{row['t_invoke']}"
        return row

    def _stored(self, kind: str) -> Callable[[Row], None]:
        """The entry of an operation: a row for each message, committed as it is answered."""

        def store(row: Row) -> None:
            recs = [
                Rec(
                    kind,
                    message["topic"],
                    message["queue"],
                    client_group=row["client_group"],
                    queue_offset=message["offset"],
                )
                for message in row["messages"]
            ]
            self.run.append(recs)
            self.run.now -= 2 * MS  # it takes no time of its own

        return store

    def _process(self, popped: Row) -> str:
        return str(popped["process"]).removeprefix(f"{self.run.name}.")

    def _receipt(self, popped: Row) -> str:
        return str(popped["ref"] if popped["f"] == "pop" else popped["key"])

    def _of(self, popped: Row, values: Sequence[str]) -> list[Row]:
        named = [self.name(value) for value in values]
        found = [dict(row) for row in popped["messages"] if row["value"] in named]
        assert len(found) == len(values)
        return found

    def consume(self, process: str, *values: str, in_order: bool = False) -> None:
        self.ack(self.pop(process, *values, in_order=in_order), *values)

    def hold_pop(self, value: str, reconsume: int = 0, *, others_after_ms: int = 30) -> None:
        """Let a pop be open when a message comes, and be shown it only after 100 ms."""
        asked = self.run.tick()
        if reconsume:
            self.come_again(value, reconsume)
        else:
            self.send(value)
        self.run.tick(others_after_ms)
        self.send(f"{value}-other")
        self.run.tick(100 - others_after_ms)
        popped = self.pop("a1", value)
        popped |= {"t_invoke": asked, "due": asked + INVISIBLE_MS * MS}
        self.ack(popped, value)
        self.consume("a1", f"{value}-other")
        self.consume("b1", value, f"{value}-other", in_order=True)

    def wait(self, ms: int = INVISIBLE_MS + 30) -> None:
        self.run.tick(ms)

    def read_all(self) -> None:
        """The other groups read the topic, and somebody the dead letters."""
        recs = self.run.stored(0, JOBS)
        for process, group, f in (("c9", "pull", "poll"), ("d9", "push", "deliver")):
            self._read(process, group, f, JOBS, recs)
        self._read("f9", "drain", "poll", JOBS, recs)["final"] = True
        self._read("g9", "popper-dead", "poll", _DEAD, self.run.stored(0, _DEAD))

    def _read(self, process: str, group: str, f: str, topic: str, recs: Sequence[Rec]) -> Row:
        more: dict[str, Any] = {"offset": 0, "final": False} if f == "poll" else {}
        return self.run.op(
            process,
            f,
            client_group=group,
            topic=topic,
            queue=0,
            messages=[self.run.shown(rec) for rec in recs],
            **more,
        )

    def find_nothing(self) -> None:
        """Each group pops once more, after the heal, and finds nothing: called in the end."""
        self.run.tick(2 * INVISIBLE_MS)
        for number, in_order in enumerate((False, True)):
            self.pop(f"z{number}", in_order=in_order)
            self.run.ops[-1]["op"] = len(self.run.ops)


Script = Callable[[Pops], None]


def popped_run(name: str, script: Script | None = None) -> SyntheticRun:
    """A run in which every step of POP went right; then `script`, before the others read."""
    found: list[Pops] = []

    def live(run: SyntheticRun) -> None:
        pops = Pops(run)
        found.append(pops)
        _as_it_should_be(pops)
        if script is not None:
            script(pops)
        pops.read_all()

    run = SyntheticRun(name, live=live)
    found[0].find_nothing()
    return run


def _as_it_should_be(pops: Pops) -> None:
    pops.send("w0", "w1", "w2", "w3", "w4", "w5")
    first = pops.pop("a1", "w0", "w1", "w2")
    second = pops.pop("a2", "w3", "w4", "w5")
    pops.ack(first, "w0")
    pops.ack(first, "w0")  # once more, which changes nothing
    longer = pops.change(first, "w1", 2 * INVISIBLE_MS)
    pops.ack(longer, "w1")
    pops.ack(second, "w5")
    pops.wait()
    for value in ("w2", "w3", "w4"):
        pops.come_again(value, 1)
    pops.ack(second, "w3")  # too late
    again = pops.pop("a1", "w2", "w3", "w4")
    pops.ack(again, "w2", "w3")
    pops.change(again, "w4", 10)
    pops.wait(20)
    pops.come_again("w4", 2)
    pops.pop("a2", "w4")
    pops.wait()
    pops.die("w4")

    ahead = pops.pop("b1", "w0", "w1", "w2", in_order=True)
    pops.ack(ahead, "w0")
    pops.ack(ahead, "w2")  # comes again with the one ahead of it
    pops.wait()
    rest = pops.pop("b2", "w1", "w2", "w3", in_order=True)
    pops.ack(rest, "w1", "w2", "w3")
    pops.consume("b1", "w4", "w5", in_order=True)
