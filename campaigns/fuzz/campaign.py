"""Minutes of mutated real frames, and of malice with form, against running brokers and name server.

    python -m campaigns.fuzz.campaign [--against single|group|secured] [--minutes M] [--seed S]
                                  [--output FILE]

Workers open connections, send what `mutations.py` and `structures.py` make, and wait: a whole
request must be answered, any connection must be closed once its sender has finished; some go to the
name server, some to the port on which brokers talk to each other. A greedy client (`greedy.py`)
takes what it can get. Beside them a canary sends and reads messages. At the end: nobody crashed,
nothing was unforeseen (a traceback in the output), memory stayed bounded, every canary that was
acknowledged is there, all replicas hold the same, `ledgermq store check` finds nothing wrong with
any log, and, where accounts are asked for, nothing stands where nobody was allowed to send.

`make fuzz` runs it; a few seconds of it are part of `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.fuzz.greedy import Greedy
from campaigns.fuzz.mutations import Attempt, Mutator
from campaigns.fuzz.target import KINDS, OPEN_TOPICS, Target, started
from campaigns.rig.processes import Processes, ledgermq, request, send_command
from remoting.connections.rpc import RemotingClient
from remoting.errors import FrameError, RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FrameDecoder
from remoting.records.message import decode_records

CANARY_TOPIC = "FuzzCanary"
WORKERS = 12
ANSWER_S = 20.0
CLOSE_S = 10.0
RSS_SIZE_MAX = 1 << 30


@dataclass
class Findings:
    """What the campaign saw."""

    attempts: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    closed_at_once: int = 0
    unanswered: list[str] = field(default_factory=list)
    not_closed: list[str] = field(default_factory=list)
    canaries: dict[int, bytes] = field(default_factory=dict)  # by queue offset
    canaries_refused: int = 0
    bursts: dict[str, object] = field(default_factory=dict)
    rss: list[tuple[float, int]] = field(default_factory=list)  # of the largest broker
    end: dict[str, object] = field(default_factory=dict)
    output: str = ""  # of the processes

    @property
    def is_clean(self) -> bool:
        return not (self.unanswered or self.not_closed or self.end["faults"])


# Attempts --------------------------------------------------------------------------------------


async def attempt(
    address: str, made: Attempt, findings: Findings, target: Target | None = None
) -> None:
    host, _, port = address.rpartition(":")
    shown = f"{made.what} to {port}: {b''.join(made.pieces)[:3_000].hex()}"
    local = None if target is None or target.local_address is None else (target.local_address, 0)
    uses_tls = target is not None and target.tls is not None and len(made.pieces[0]) % 2
    try:
        reader, writer = await asyncio.open_connection(
            host,
            int(port),
            local_addr=local,
            ssl=target.tls if target is not None and uses_tls and made.what != "raft" else None,
        )
    except OSError as error:
        findings.unanswered.append(f"can't connect ({error}): {shown}")
        await asyncio.sleep(0.5)
        return
    try:
        for piece in made.pieces:
            writer.write(piece)
            await writer.drain()
        if made.is_answered:
            await expect_answer(reader, shown, findings)
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS: nothing is half closed
            writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                while await reader.read(1 << 16):
                    continue
        except TimeoutError:
            findings.not_closed.append(shown)
    except OSError:  # a reset, or an end that came first
        findings.closed_at_once += 1
    finally:
        writer.close()


async def expect_answer(reader: asyncio.StreamReader, shown: str, findings: Findings) -> None:
    decoder = FrameDecoder()
    try:
        async with asyncio.timeout(ANSWER_S):
            while data := await reader.read(1 << 16):
                if any(answer.is_response for answer in decoder.feed(data)):
                    findings.answered += 1
                    return
    except TimeoutError:
        findings.unanswered.append(shown)
        return
    except FrameError as error:
        findings.unanswered.append(f"no frame came back ({error}): {shown}")
        return
    findings.closed_at_once += 1


async def worker(target: Target, mutator: Mutator, findings: Findings, deadline: float) -> None:
    """Every seventh attempt goes to the name server, every nineteenth to a Raft port."""
    brokers, raft_ports = target.brokers, target.raft_ports
    (name_server,) = target.processes.name_servers
    number = 0
    while time.monotonic() < deadline:
        number += 1
        if number % 19 == 0:
            address, made = raft_ports[number % len(raft_ports)], mutator.garbage()
        elif number % 7 == 0:
            address, made = name_server, mutator.next(for_name_server=True)
        else:
            address, made = brokers[number % len(brokers)], mutator.next(sign=target.sign)
        findings.attempts[made.what] += 1
        plain = Target(kind=target.kind, processes=target.processes)
        await attempt(address, made, findings, target if address in brokers else plain)


async def greedy(target: Target, seed: int, findings: Findings, deadline: float) -> None:
    client = Greedy(seed, local_address=target.local_address, sign=target.sign)
    brokers = target.brokers
    for broker in brokers:  # what it asks for later has to be there; followers refuse
        await asyncio.to_thread(request, broker, send_command("T0", b"first", "T0"))
    number = 0
    while time.monotonic() < deadline:
        number += 1
        await client.burst(brokers[number % len(brokers)])
    findings.bursts = {
        "counts": dict(client.bursts),
        "answers": {name: dict(codes) for name, codes in client.answers.items()},
    }


# The canary ------------------------------------------------------------------------------------


async def canary(target: Target, findings: Findings, deadline: float) -> None:
    """A message after the other, each of which must be stored although all that goes on."""
    client = RemotingClient()
    number = at = 0
    brokers = target.brokers
    while time.monotonic() < deadline:
        body = b"canary %d" % number
        command = send_command(CANARY_TOPIC, body, f"CANARY{number}")
        try:
            answer = await client.request(brokers[at], command, 10_000)
        except RemotingError:
            answer = None
        if answer is not None and answer.code == 0:
            findings.canaries[int(answer.ext_fields["queueOffset"])] = body
            number += 1
        else:
            findings.canaries_refused += 1
            at = (at + 1) % len(brokers)
        await asyncio.sleep(0.05)
    await client.close()


async def missing_canaries(target: Target, address: str, findings: Findings) -> int:
    """Acknowledged ones that are not where they were said to be."""
    client = RemotingClient()
    found: dict[int, bytes] = {}
    offset = min(findings.canaries, default=0)
    while offset <= max(findings.canaries, default=-1):
        command = RemotingCommand(
            code=11,
            ext_fields={
                "consumerGroup": "FuzzReader", "topic": CANARY_TOPIC, "queueId": "0",
                "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            },
        )  # fmt: skip
        answer = await client.request(address, command, 10_000)
        if answer.code != 0:
            break
        for record in decode_records(answer.body):
            found[record.queue_offset] = record.body
        offset = max(found) + 1
    await client.close()
    return sum(found.get(at) != body for at, body in findings.canaries.items())


# A campaign ------------------------------------------------------------------------------------


async def watch(group: Processes, findings: Findings, deadline: float) -> None:
    began = time.monotonic()
    while time.monotonic() < deadline:
        sizes = [group.rss_bytes(name) for name in group.brokers if group.table.find(name)]
        if sizes:
            findings.rss.append((round(time.monotonic() - began, 1), max(sizes)))
        await asyncio.sleep(1)


async def assault(target: Target, seed: int, seconds: float) -> Findings:
    findings = Findings()
    deadline = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            mutator = Mutator(seed * 1_000 + number)
            tasks.create_task(worker(target, mutator, findings, deadline))
        tasks.create_task(greedy(target, seed, findings, deadline))
        tasks.create_task(canary(target, findings, deadline))
        tasks.create_task(watch(target.processes, findings, deadline))
    return findings


def judge(target: Target, findings: Findings) -> None:
    """What is left of the processes and of the logs."""
    group, faults = target.processes, list[str]()
    outputs = "".join(group.output(process) for process in group.table.names())
    unforeseen = outputs.count("Traceback (most recent call last)")
    if unforeseen:
        ends = re.findall(r"^(?:[ |]*)(\w[\w.]*(?:Error|Exception)\b.*)", outputs, re.MULTILINE)
        faults.append(f"{unforeseen} tracebacks: {Counter(ends).most_common(10)}")
    gone = [name for name in group.brokers if group.table.find(name) is None]
    if gone:
        faults.append(f"ended: {', '.join(gone)}")
    else:
        faults += _unequal(target, findings)
    for name in set(group.brokers) - set(gone):
        if (code := group.terminate(name, 30)) != 0:
            faults.append(f"{name} stopped with {code}")
    for name in group.brokers:
        check = ledgermq("store", "check", group.store(name), timeout_s=300)
        if check.returncode != 0:
            text = f"{check.returncode} {check.stdout[-500:]} {check.stderr[-500:]}"
            faults.append(f"store check of {name}: {text}")
    if not findings.canaries:
        faults.append("no canary was stored")
    if max(size for _, size in findings.rss) > RSS_SIZE_MAX:
        faults.append(f"memory: {max(size for _, size in findings.rss)} bytes")
    findings.end |= {"faults": faults, "tracebacks": unforeseen}


def _unequal(target: Target, findings: Findings) -> list[str]:
    """What is wrong with what the living brokers hold."""
    group, faults = target.processes, list[str]()
    try:
        leader = group.leader()
        group.await_caught_up()
    except AssertionError as error:
        return [str(error)]
    missing = asyncio.run(missing_canaries(target, group.place(leader).address, findings))
    if missing:
        faults.append(f"{missing} acknowledged canaries are missing")
    held = {address: _queues(address) for address in target.brokers}
    if len({json.dumps(queues) for queues in held.values()}) != 1:
        faults.append(f"replicas hold different queues: {held}")
    if target.sign is not None:
        stored = {topic for topic, _, _, end in held[target.brokers[0]] if end}
        own = {topic for topic in stored if topic in OPEN_TOPICS or _is_waiting(topic)}
        if stored - own:
            faults.append(f"stored without permission in {sorted(stored - own)}")
    findings.end["queues"] = len(held[target.brokers[0]])
    return faults


def _queues(address: str) -> list[tuple[str, int, int, int]]:
    """(topic, queue, first offset, next offset) as a broker tells them, but for queues in which
    there never was a message: a question alone makes those, where it is asked."""
    answer = request(address, RemotingCommand(code=60001, ext_fields={"queues": "true"}), 10_000)
    assert isinstance(answer, RemotingCommand), answer
    rows = json.loads(answer.body)["queues"]
    return sorted(
        (row["topic"], row["queue"], row["min_offset"], row["max_offset"])
        for row in rows
        if row["max_offset"]
    )


def _is_waiting(topic: str) -> bool:
    """Where messages of the open topic wait, or go when nobody wants them, and its group's own."""
    own = ("RMQ_SYS_TRANS_", "SCHEDULE_", "rmq_sys_", "TRANS_CHECK_", "%RETRY%G0", "%DLQ%G0")
    return topic.startswith(own)


def run(directory: Path, seed: int, seconds: float, kind: str = "single") -> Findings:
    with started(kind, directory) as target:
        findings = asyncio.run(assault(target, seed, seconds))
        judge(target, findings)
        group = target.processes
        findings.output = "".join(group.output(process) for process in group.table.names())
    return findings


def report(
    findings: Findings, seed: int, seconds: float, kind: str = "single"
) -> dict[str, object]:
    return {
        "against": kind,
        "seed": seed,
        "seconds": seconds,
        "attempts": sum(findings.attempts.values()),
        "by_mutation": dict(findings.attempts),
        "answered": findings.answered,
        "closed_at_once": findings.closed_at_once,
        "unanswered": len(findings.unanswered),
        "not_closed": len(findings.not_closed),
        "canaries_stored": len(findings.canaries),
        "canaries_refused": findings.canaries_refused,
        "greedy": findings.bursts,
        "rss_bytes_first": findings.rss[0][1],
        "rss_bytes_last": findings.rss[-1][1],
        "rss_bytes_max": max(size for _, size in findings.rss),
        **findings.end,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", choices=KINDS, action="append")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60
    reports: list[dict[str, object]] = []
    outputs: list[str] = []
    is_clean = True
    for kind in arguments.against or KINDS:
        with tempfile.TemporaryDirectory(prefix="ledgermq-fuzz-") as directory:
            findings = run(Path(directory) / "cluster", arguments.seed, seconds, kind)
        is_clean = is_clean and findings.is_clean
        reports.append(report(findings, arguments.seed, seconds, kind))
        outputs.append(findings.output)
        sys.stdout.write(f"{json.dumps(reports[-1], indent=2)}\n")
        sys.stdout.flush()
        for shown in [*findings.unanswered[:5], *findings.not_closed[:5]]:
            sys.stderr.write(f"{shown[:2_000]}\n")
    if arguments.output is not None:
        arguments.output.write_text(f"{json.dumps(reports, indent=2)}\n", encoding="utf-8")
        arguments.output.with_suffix(".log").write_text("".join(outputs), encoding="utf-8")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
