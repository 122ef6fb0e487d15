"""Real processes for the tests of what happens when things are wrong.

`Processes` is one cluster in a directory: laid out, started, killed and started again through
`chaos`; `ledgermq` runs one command as a person would. Everything waits with a deadline, and
every process ends with its test.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest import mock

from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.broker_status import BrokerStatus, query_all
from chaos.cluster.layout import BrokerPlace, ClusterLayout, lay_out
from chaos.cluster.processes import ProcessTable
from ledgermq.__main__ import main
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.records.message_id import parse_offset_msg_id

__all__ = [
    "Processes",
    "Stored",
    "ledgermq",
    "ledgermq_here",
    "one_line",
    "print_line",
    "request",
    "running",
    "send_command",
]

COMMAND_TIMEOUT_S = 60
DEADLINE_S = 20.0


def ledgermq(
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """One command to its end. `flags` are the interpreter's."""
    return subprocess.run(
        [sys.executable, *flags, "-m", "ledgermq", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        env=None if environment is None else dict(environment),
    )


@contextlib.contextmanager
def running(
    *arguments: str | Path, ignoring: Sequence[signal.Signals] = ()
) -> Iterator[subprocess.Popen[str]]:
    """One command in a session of its own, killed at the end of the block where it still runs.

    `ignoring`: signals that it finds ignored, as a shell's `&` and `nohup` leave them.
    """

    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number in ignoring else signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=ignore,  # noqa: PLW1509 - it sets two signals, and nothing else can
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ledgermq_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same in this process: for what is refused before anything is started."""
    out, err = io.StringIO(), io.StringIO()
    words = ["ledgermq", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line with which a command refused, after checking that it is one."""
    text = f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, text
    assert "Traceback" not in done.stderr, text
    lines = [line for line in done.stderr.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]
    assert len(lines) == 1, text
    assert lines[0].startswith("ledgermq"), text
    print_line(lines[0])
    return lines[0]


def print_line(text: str | None) -> None:
    """What was measured, or what a person sees: shown by `pytest -rP`."""
    sys.stdout.write(f"{text}\n")


def request(
    address: str,
    command: RemotingCommand,
    timeout_ms: int = 3_000,
    tls: ssl.SSLContext | None = None,
) -> RemotingCommand | RemotingError:
    """One request over a connection of its own: its answer, or why there is none."""

    async def call() -> RemotingCommand | RemotingError:
        client = RemotingClient(tls=tls)
        try:
            return await client.request(address, command, timeout_ms)
        except RemotingError as error:
            return error
        finally:
            await client.close()

    return asyncio.run(call())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a broker says that it stored a message."""

    queue_id: int
    queue_offset: int
    position: int  # in the log


def send_command(
    topic: str, body: bytes, key: str, *, queue_id: int = 0, born_ms: int | None = None
) -> RemotingCommand:
    """A plain send, as RocketMQ's clients write it (V2), with the UNIQ_KEY given."""
    return RemotingCommand(
        code=310,
        ext_fields={
            "a": "PG",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": str(time.time_ns() // 1_000_000 if born_ms is None else born_ms),
            "h": "0",
            "i": f"UNIQ_KEY\x01{key}\x02",
            "j": "0",
            "k": "false",
            "m": "false",
        },
        body=body,
    )


class Processes:
    """A cluster of real processes in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        replicas: int = 3,
        name_servers: int = 1,
        engine: str = "raft",
        broker_settings: Mapping[str, int | bool | str] | None = None,
        raft_settings: Mapping[str, int] | None = None,
        failpoints: bool = False,
    ) -> None:
        self.directory = directory
        ports = cluster.plan_ports(
            groups=1, replicas=replicas, name_servers=name_servers, namesrv_port=0, base_port=0
        )
        self.layout: ClusterLayout = lay_out(
            groups=1,
            replicas=replicas,
            name_servers=name_servers,
            ports=ports,
            engine=engine,
            broker_settings=broker_settings,
            raft_settings=raft_settings,
        )
        cluster.write_directory(directory, self.layout, failpoints=failpoints)
        self.table = ProcessTable(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.table.stop(self.table.names(), timeout_s=5)

    # Who is there ------------------------------------------------------------------------------

    @property
    def name_servers(self) -> list[str]:
        return list(self.layout.name_server_addresses)

    @property
    def brokers(self) -> list[str]:
        """Process names."""
        return [place.name for place in self.layout.brokers]

    def place(self, name: str) -> BrokerPlace:
        return self.layout.broker(name)

    def store(self, name: str) -> Path:
        return self.layout.store_directory(self.directory, self.place(name))

    def config(self, name: str) -> Path:
        return self.directory / "config" / f"{name}.toml"

    def output(self, name: str) -> str:
        return self.table.output_file(name).read_text(encoding="utf-8", errors="replace")

    def pid(self, name: str) -> int:
        process = self.table.find(name)
        assert process is not None, f"{name} has ended:\n{self.table.output_tail(name)}"
        return process.pid

    def rss_bytes(self, name: str) -> int:
        """Resident memory now."""
        pages = Path(f"/proc/{self.pid(name)}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    # Start and end -----------------------------------------------------------------------------

    def start(self) -> Self:
        """All of it, ready."""
        cluster.start_all(self.table, self.directory, self.layout)
        self.await_ready()
        return self

    def await_ready(self) -> None:
        asyncio.run(cluster.await_ready(self.table, self.layout))

    def start_broker(self, name: str) -> None:
        """Not waited for."""
        self.table.start(name, cluster.broker_process(self.directory, name))

    def kill(self, *names: str) -> None:
        """kill -9, all of them before the first is waited for."""
        for name in names:
            self.table.signal(name, signal.SIGKILL)
        for name in names:
            await_until(partial(self._is_gone, name), f"{name} is dead")

    def _is_gone(self, name: str) -> bool:
        return self.table.find(name) is None

    def terminate(self, name: str, seconds: float = 10) -> int:
        """SIGTERM, and the exit code."""
        self.table.signal(name, signal.SIGTERM)
        return self.await_end(name, seconds)

    def await_end(self, name: str, seconds: float = 10) -> int:
        await_until(lambda: self.table.find(name) is None, f"{name} ends", seconds)
        code = self.table.exit_code(name)
        assert code is not None
        return code

    def run_broker(self, name: str) -> subprocess.CompletedProcess[str]:
        """A broker that is expected to end by itself."""
        return ledgermq("broker", "--config", self.config(name))

    # What it says ------------------------------------------------------------------------------

    def statuses(self) -> dict[str, BrokerStatus]:
        """By process name; silent nodes are left out."""
        names = {place.address: place.name for place in self.layout.brokers}
        answers = asyncio.run(query_all(list(names), timeout_ms=1_000))
        return {names[address]: answer for address, answer in answers.items()}

    def leader(self, *, other_than: str | None = None) -> str:
        """The ready leader, waited for."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            ready = [name for name, status in self.statuses().items() if status.ready]
            if len(ready) == 1 and ready[0] != other_than:
                return ready[0]
            time.sleep(0.05)
        raise AssertionError(f"no leader but {other_than} in {DEADLINE_S:g} s")

    def await_caught_up(self) -> None:
        """Until every replica has applied the same entries."""

        def all_equal() -> bool:
            statuses = self.statuses().values()
            ends = {(s.last_index, s.commit_index, s.applied_index) for s in statuses}
            return len(statuses) == len(self.layout.brokers) and len(ends) == 1

        await_until(all_equal, "all replicas hold the same log")

    def send(self, topic: str, body: bytes, key: str, **more: int) -> Stored:
        """Send to the leader, again with the same key until it is acknowledged."""
        deadline = time.monotonic() + DEADLINE_S
        answers: dict[str, object] = {}
        while time.monotonic() < deadline:
            for place in self.layout.brokers:
                answer = request(place.address, send_command(topic, body, key, **more))
                answers[place.name] = answer
                if isinstance(answer, RemotingCommand) and answer.code == 0:
                    return Stored(
                        queue_id=int(answer.ext_fields["queueId"]),
                        queue_offset=int(answer.ext_fields["queueOffset"]),
                        position=parse_offset_msg_id(answer.ext_fields["msgId"])[2],
                    )
            time.sleep(0.05)
        raise AssertionError(f"{key} was not acknowledged: {answers}")
