"""Minutes of mutated real frames against a running broker and name server.

    python -m tests.fuzz.campaign [--minutes M] [--seed S] [--output FILE]

Workers open connections, send what `mutations.py` makes of recorded frames, and wait: a whole
request must be answered, any connection must be closed once its sender has finished. Beside them a
canary sends and reads messages. At the end: nobody crashed, nothing was unforeseen (a traceback in
the output), memory stayed bounded, every canary that was acknowledged is there, and
`ledgermq store check` finds nothing wrong with the log.

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

from remoting.command import RemotingCommand
from remoting.errors import FrameError, RemotingError
from remoting.frame import FrameDecoder
from remoting.message import decode_records
from remoting.rpc import RemotingClient
from tests.fuzz.mutations import Attempt, Mutator
from tests.integration.rig import Processes, ledgermq, send_command

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
    rss: list[tuple[float, int]] = field(default_factory=list)
    end: dict[str, object] = field(default_factory=dict)
    output: str = ""  # of the processes

    @property
    def is_clean(self) -> bool:
        return not (self.unanswered or self.not_closed or self.end["faults"])


async def attempt(address: str, made: Attempt, findings: Findings) -> None:
    host, _, port = address.rpartition(":")
    shown = f"{made.what} to {port}: {b''.join(made.pieces)[:3_000].hex()}"
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
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
                if decoder.feed(data):
                    findings.answered += 1
                    return
    except TimeoutError:
        findings.unanswered.append(shown)
        return
    except FrameError as error:
        findings.unanswered.append(f"no frame came back ({error}): {shown}")
        return
    findings.closed_at_once += 1


async def worker(
    addresses: list[str], mutator: Mutator, findings: Findings, deadline: float
) -> None:
    """Every seventh attempt goes to the name server."""
    number = 0
    while time.monotonic() < deadline:
        number += 1
        made = mutator.next()
        findings.attempts[made.what] += 1
        await attempt(addresses[number % 7 == 0], made, findings)


async def canary(address: str, findings: Findings, deadline: float) -> None:
    """A message after the other, each of which must be stored although all that goes on."""
    client = RemotingClient()
    number = 0
    while time.monotonic() < deadline:
        body = b"canary %d" % number
        command = send_command(CANARY_TOPIC, body, f"CANARY{number}")
        try:
            answer = await client.request(address, command, 10_000)
        except RemotingError:
            findings.canaries_refused += 1
            continue
        if answer.code == 0:
            findings.canaries[int(answer.ext_fields["queueOffset"])] = body
            number += 1
        else:
            findings.canaries_refused += 1
        await asyncio.sleep(0.05)
    await client.close()


async def watch(group: Processes, findings: Findings, deadline: float) -> None:
    (name,) = group.brokers
    began = time.monotonic()
    while time.monotonic() < deadline and group.table.find(name) is not None:
        findings.rss.append((round(time.monotonic() - began, 1), group.rss_bytes(name)))
        await asyncio.sleep(1)


async def missing_canaries(address: str, findings: Findings) -> int:
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


async def assault(group: Processes, seed: int, seconds: float) -> Findings:
    findings = Findings()
    (name,) = group.brokers
    address = group.place(name).address
    deadline = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            mutator = Mutator(seed * 1_000 + number)
            addresses = [address, group.name_servers[0]]
            tasks.create_task(worker(addresses, mutator, findings, deadline))
        tasks.create_task(canary(address, findings, deadline))
        tasks.create_task(watch(group, findings, deadline))
    try:
        findings.end["missing_canaries"] = await missing_canaries(address, findings)
    except RemotingError as error:
        findings.end["missing_canaries"] = f"all, for the broker is gone: {error}"
    return findings


def judge(group: Processes, findings: Findings) -> None:
    """What is left of the processes and of the log."""
    (name,) = group.brokers
    faults: list[str] = []
    outputs = "".join(group.output(process) for process in group.table.names())
    unforeseen = outputs.count("Traceback (most recent call last)")
    if unforeseen:
        ends = re.findall(r"^(?:[ |]*)(\w[\w.]*(?:Error|Exception)\b.*)", outputs, re.MULTILINE)
        faults.append(f"{unforeseen} tracebacks: {Counter(ends).most_common(10)}")
    if group.table.find(name) is None:
        faults.append("the broker has ended")
    elif (code := group.terminate(name, 30)) != 0:
        faults.append(f"the broker stopped with {code}")
    check = ledgermq("store", "check", group.store(name), timeout_s=300)
    if check.returncode != 0:
        faults.append(
            f"store check: {check.returncode} {check.stdout[-500:]} {check.stderr[-500:]}"
        )
    if findings.end["missing_canaries"]:
        faults.append(f"{findings.end['missing_canaries']} acknowledged canaries are missing")
    if not findings.canaries:
        faults.append("no canary was stored")
    if max(size for _, size in findings.rss) > RSS_SIZE_MAX:
        faults.append(f"memory: {max(size for _, size in findings.rss)} bytes")
    findings.end |= {"faults": faults, "tracebacks": unforeseen, "store_check": check.returncode}


def run(directory: Path, seed: int, seconds: float) -> Findings:
    with Processes(directory, replicas=1) as group:
        group.start()
        findings = asyncio.run(assault(group, seed, seconds))
        judge(group, findings)
        findings.output = "".join(group.output(process) for process in group.table.names())
    return findings


def report(findings: Findings, seed: int, seconds: float) -> dict[str, object]:
    return {
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
        "rss_bytes_first": findings.rss[0][1],
        "rss_bytes_last": findings.rss[-1][1],
        "rss_bytes_max": max(size for _, size in findings.rss),
        **findings.end,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60
    with tempfile.TemporaryDirectory(prefix="ledgermq-fuzz-") as directory:
        findings = run(Path(directory) / "cluster", arguments.seed, seconds)
    told = report(findings, arguments.seed, seconds)
    text = json.dumps(told, indent=2)
    sys.stdout.write(f"{text}\n")
    for shown in [*findings.unanswered[:5], *findings.not_closed[:5]]:
        sys.stderr.write(f"{shown[:2_000]}\n")
    if arguments.output is not None:
        arguments.output.write_text(f"{text}\n", encoding="utf-8")
        arguments.output.with_suffix(".log").write_text(findings.output, encoding="utf-8")
    return 0 if findings.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
