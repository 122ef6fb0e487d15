"""A hundred random corruptions of stopped nodes: each is found, none is served, all are repaired.

    python -m campaigns.drills.corruption [--corruptions N] [--seed S] [--output FILE]

A group of three holds some hundred entries in small segments. Each round stops one node, or two,
ruins files of their logs (`damage`), starts them again and waits until the group is
whole. Then every message is read from every node and compared with what was sent, and the nodes'
logs with copies made before. The places of two nodes never overlap: one good copy exists. The
last round ruins one entry on all three: no good copy, and the nodes report it and keep the rest.

Not part of `make test` (it takes minutes); `make drills` runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from campaigns.drills.damage import KINDS, Ruin, data_size, ruin, segments
from campaigns.rig.processes import Processes, request
from campaigns.rig.waiting import await_until
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

SEGMENT_SIZE_BYTES = 512 << 10
MESSAGES = 4_000
QUEUES = 4
PER_ROUND = 4
WHOLE_TIMEOUT_S = 60.0


def fill(group: Processes, keys: range) -> dict[tuple[int, int], bytes]:
    """Send; what each queue offset holds."""
    stored = {}
    for number in keys:
        body = random.Random(number).randbytes(1024)
        place = group.send("Drill", body, f"K{number}", queue_id=number % QUEUES)
        stored[(place.queue_id, place.queue_offset)] = body
    return stored


def read_all(
    group: Processes, name: str, expected: dict[tuple[int, int], bytes]
) -> tuple[int, int]:
    """Pull every queue of `name` from its beginning: messages read, pulls refused until repaired.

    Raises AssertionError at a wrong message.
    """
    address = group.place(name).address
    read = refused = 0
    deadline = time.monotonic() + WHOLE_TIMEOUT_S
    for queue in range(QUEUES):
        end = 1 + max(offset for q, offset in expected if q == queue)
        offset = 0
        while offset < end:
            answer = request(address, _pull(queue, offset))
            assert isinstance(answer, RemotingCommand), f"{name}: {answer}"
            if answer.code == 1 and "damaged" in (answer.remark or ""):
                assert time.monotonic() < deadline, f"{name}: {answer.remark}"
                refused += 1
                time.sleep(0.05)
                continue
            assert answer.code == 0, f"{name}: {answer.code} {answer.remark}"
            for record in decode_records(answer.body):
                assert record.queue_offset == offset, f"{name}: {record.queue_offset} at {offset}"
                body = expected[(queue, offset)]
                assert record.body == body, f"{name} served wrong bytes at {queue}/{offset}"
                offset += 1
                read += 1
    return read, refused


def _pull(queue: int, offset: int) -> RemotingCommand:
    fields = {
        "consumerGroup": "drill",
        "topic": "Drill",
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand(code=11, ext_fields=fields)


def log_bytes(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes()[: data_size(path)] for path in segments(store)}


def log_stream(store: Path) -> bytes:
    """The whole log: a lost last segment may be repaired as a part of the one before it."""
    stream = b""
    for name, data in sorted(log_bytes(store).items()):
        assert int(name) == len(stream), f"{name} does not continue a log of {len(stream)} bytes"
        stream += data
    return stream


class Drill:
    def __init__(self, group: Processes, seed: int) -> None:
        self.group = group
        self.rng = random.Random(seed)
        self.ruins: list[Ruin] = []
        self.rounds: list[dict[str, object]] = []
        self.wrong: list[str] = []

    def run(self, corruptions: int) -> None:
        group = self.group
        expected = fill(group, range(MESSAGES))
        group.await_caught_up()
        number = 0
        while len(self.ruins) < corruptions:
            number += 1
            victims = self.rng.sample(group.brokers, 1 + number % 2)
            for name in victims:
                assert group.terminate(name) == 0
            before = {name: log_stream(group.store(name)) for name in victims}
            lengths = {name: len(group.output(name)) for name in victims}
            ruins = self._ruin(victims, min(PER_ROUND, corruptions - len(self.ruins)))
            began = time.monotonic()
            for name in victims:
                group.start_broker(name)
            try:
                await_until(self._is_whole, f"whole after {ruins}", WHOLE_TIMEOUT_S)
            except AssertionError as error:
                self._note_wrong(str(error), victims)
                return
            took_s = time.monotonic() - began
            refused = 0
            for name in group.brokers:
                read, refused_there = read_all(group, name, expected)
                assert read == len(expected)
                refused += refused_there
            found = {name: group.output(name)[lengths[name] :] for name in victims}
            for name in victims:
                if not _reports_damage(found[name]):
                    self._note_wrong(f"{name} told of no damage", victims)
                now = log_stream(group.store(name))[: len(before[name])]
                if now != before[name]:
                    text = f"{name}'s log is not what it was: {_difference(before[name], now)}"
                    self._note_wrong(text, victims)
            self.rounds.append(
                {
                    "victims": len(victims),
                    "corruptions": len(ruins),
                    "whole_s": round(took_s, 2),
                    "pulls_refused_until_mended": refused,
                }
            )
            print(json.dumps(self.rounds[-1]), flush=True)
            more = fill(group, range(MESSAGES + 50 * number, MESSAGES + 50 * (number + 1)))
            expected |= more
            group.await_caught_up()

    def _ruin(self, victims: list[str], count: int) -> list[str]:
        """`count` corruptions of the victims' logs, no segment ruined on both of them."""
        names = [path.name for path in segments(self.group.store(victims[0]))]
        self.rng.shuffle(names)
        ruined = []
        for number in range(count):
            victim = victims[number % len(victims)]
            mine = set(names[number % len(victims) :: len(victims)])
            files = [f for f in segments(self.group.store(victim)) if f.name in mine]
            done = None
            while done is None:
                done = ruin(self.rng.choice(sorted(KINDS)), files, self.rng)
            self.ruins.append(done)
            ruined.append(f"{victim}: {done.kind} in {done.file}, {done.place}")
        return ruined

    def _is_whole(self) -> bool:
        statuses = self.group.statuses().values()
        ends = {(s.last_index, s.commit_index, s.applied_index) for s in statuses}
        return (
            len(statuses) == len(self.group.brokers)
            and len(ends) == 1
            and any(status.ready for status in statuses)
        )

    def _note_wrong(self, what: str, victims: list[str]) -> None:
        tails = "\n".join(f"--- {name}\n{self.group.output(name)[-1500:]}" for name in victims)
        print(f"WRONG: {what}\n{tails}", file=sys.stderr, flush=True)
        self.wrong.append(what)

    def ruin_everywhere(self) -> str:
        """One closed segment's page on all nodes: what they report then."""
        group = self.group
        for name in group.brokers:
            assert group.terminate(name) == 0
        lengths = {name: len(group.output(name)) for name in group.brokers}
        before_bytes = {name: log_bytes(group.store(name)) for name in group.brokers}
        victim = segments(group.store(group.brokers[0]))[2].name
        for name in group.brokers:
            path = group.store(name) / "commitlog" / victim
            with path.open("r+b") as stream:
                stream.seek(8192)
                stream.write(bytes(4096))
        for name in group.brokers:
            group.start_broker(name)

        def all_report_it() -> bool:
            return all(
                "has a good copy of" in group.output(name)[lengths[name] :]
                for name in group.brokers
            )

        try:
            await_until(all_report_it, "every node says that no copy is left", WHOLE_TIMEOUT_S)
        except AssertionError as error:
            self._note_wrong(str(error), group.brokers)
        for name in group.brokers:
            for file, data in log_bytes(group.store(name)).items():
                if (
                    file != victim
                    and data[: len(before_bytes[name][file])] != before_bytes[name][file]
                ):
                    self._note_wrong(f"{name}/{file} was not kept", group.brokers)
        lines = group.output(group.brokers[0])[lengths[group.brokers[0]] :].splitlines()
        return next((line for line in lines if "has a good copy of" in line), "nothing")


def _difference(before: bytes, now: bytes) -> str:
    at = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(now))
    return (
        f"of {len(before)} bytes {len(now)} are there, the first other one at {at}: "
        f"{before[at : at + 48].hex()}, now {now[at : at + 48].hex()}"
    )


def _reports_damage(output: str) -> bool:
    return "damaged" in output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corruptions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="drill-", dir="."))
    settings = {"segment_size_bytes_max": SEGMENT_SIZE_BYTES}
    with Processes(root.resolve(), raft_settings=settings) as group:
        drill = Drill(group.start(), arguments.seed)
        drill.run(arguments.corruptions)
        without_a_copy = drill.ruin_everywhere()
    figures = {
        "corruptions": len(drill.ruins),
        "kinds": dict(Counter(done.kind for done in drill.ruins)),
        "rounds": drill.rounds,
        "wrong": drill.wrong,
        "without_a_good_copy": without_a_copy,
    }
    print(json.dumps(figures, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    if drill.wrong:
        raise SystemExit(f"kept for a look: {root}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
