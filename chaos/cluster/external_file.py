"""The file that describes a cluster which somebody else runs, and the commands in it.

Place in the data path: `chaos.systems.external` and `chaos.links.external` are made of it. It says
where the nodes are and which shell commands kill, restart, pause, resume, query, cut and heal them;
what is not given leaves its faults out, by name.

    system = "rocketmq"            # for the report; version likewise
    version = "5.3.3"
    name_servers = ["10.0.0.1:9876"]
    remembers_keys = false         # whether a retry with one UNIQ_KEY is stored once

    [[nodes]]
    group = "broker-a"             # RocketMQ's brokerName
    node = "n0"
    address = "10.0.0.5:10911"

    [commands]
    kill = "ssh {host} pkill -9 -f broker.conf"
    restart = "ssh {host} systemctl start broker"
    pause = "..."                  # and resume
    state = "..."                  # prints running, stopped or gone
    status = "..."                 # prints JSON: role, term, leader, ready, commit_index, ...
    cut = "firewall drop {who_host} {whom_host}"
    heal = "firewall accept {who_host} {whom_host}"
    probe = "..."                  # exits with 0 where bytes of who reach whom, 1 where not

Invariants: a command that fails or outlasts its time is an error with its output, never an effect;
no text of the cluster gets into a command line, only names and addresses of the file, quoted;
nothing is started or stopped that the file does not name.

Source: docs/BRING-YOUR-OWN.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from chaos.cluster.layout import BrokerPlace, ClusterLayout, NameServerPlace

__all__ = ["ExternalCluster", "ExternalFileError", "read_file"]

_FILE_SIZE_BYTES_MAX: Final = 1 << 20
_NODES_MAX: Final = 100
_OUTPUT_BYTES_MAX: Final = 1 << 16
_ERROR_TEXT_MAX: Final = 300
_COMMANDS: Final = frozenset(
    {"kill", "restart", "pause", "resume", "state", "status", "cut", "heal", "probe"}
)
_OF_PROCESSES: Final = frozenset({"kill", "restart", "pause", "resume", "state"})


class ExternalFileError(Exception):
    """The file does not describe a cluster; the text names the key and what is wrong with it."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    node: str
    address: str
    host: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name_servers: list[str]
    nodes: list[_Node]
    system: str = "external"
    version: str = "unknown"
    remembers_keys: bool = False
    timeout_s: float = 15.0
    commands: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCluster:
    """A parsed file. `hosts`: by process name, for the placeholders of commands."""

    system: str
    version: str
    dedupes: bool
    layout: ClusterLayout
    hosts: Mapping[str, str]
    commands: Mapping[str, str]
    timeout_s: float

    @property
    def has_processes(self) -> bool:
        """Whether processes can be killed, restarted, paused and resumed."""
        return self.commands.keys() >= _OF_PROCESSES

    @property
    def has_cuts(self) -> bool:
        """Whether links can be cut and healed."""
        return {"cut", "heal"} <= self.commands.keys()

    async def succeed(self, command: str, kind: type[Exception], **places: str) -> str:
        """Run a command; return its output. Raises `kind` where it fails or takes too long."""
        try:
            code, output = await self.run(command, **places)
        except TimeoutError as error:
            raise kind(f"the command {command} took longer than {self.timeout_s:g} s") from error
        if code != 0:
            raise kind(f"the command {command} ended with {code}: {output[:_ERROR_TEXT_MAX]}")
        return output

    async def run(self, command: str, **places: str) -> tuple[int, str]:
        """Run a command of the file; return exit code and output.

        Raises TimeoutError where it takes longer than `timeout_s`; it is killed then, and where the
        caller is cancelled, with all that it started in its session.
        """
        text = self.commands[command]
        for name, value in places.items():
            text = text.replace("{" + name + "}", shlex.quote(value))
        process = await asyncio.create_subprocess_shell(
            text,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_OUTPUT_BYTES_MAX,
            start_new_session=True,  # so that what the shell started can be killed with it
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self.timeout_s):
                output = await _read_all(process.stdout)
                code = await process.wait()
        except (TimeoutError, asyncio.CancelledError):
            # Not the shell alone: `wait` ends once nobody holds the pipe, what it started neither.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        return code, output.decode("utf-8", "replace").strip()


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, which may come in parts; of much the first `_OUTPUT_BYTES_MAX` are kept."""
    kept = bytearray()
    while data := await stream.read(_OUTPUT_BYTES_MAX):
        kept += data[: _OUTPUT_BYTES_MAX - len(kept)]
    return bytes(kept)


def read_file(path: Path) -> ExternalCluster:
    """Read the description of a cluster. Raises ExternalFileError, OSError."""
    if path.stat().st_size > _FILE_SIZE_BYTES_MAX:
        raise ExternalFileError(f"{path}: larger than {_FILE_SIZE_BYTES_MAX} bytes")
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ExternalFileError(f"{path}: {error}") from error
    problem = _problem(file)
    if problem is not None:
        raise ExternalFileError(f"{path}: {problem}")
    servers = tuple(
        NameServerPlace(name=f"namesrv-{i}", address=address)
        for i, address in enumerate(file.name_servers)
    )
    places = tuple(
        BrokerPlace(group=n.group, node=n.node, address=n.address, raft_address=n.address)
        for n in file.nodes
    )
    hosts = {f"{n.group}-{n.node}": n.host or n.address.rpartition(":")[0] for n in file.nodes} | {
        server.name: server.address.rpartition(":")[0] for server in servers
    }
    return ExternalCluster(
        system=file.system,
        version=file.version,
        dedupes=file.remembers_keys,
        layout=ClusterLayout(engine="external", name_servers=servers, brokers=places),
        hosts=hosts,
        commands=dict(file.commands),
        timeout_s=file.timeout_s,
    )


def _problem(file: _File) -> str | None:
    if not 1 <= len(file.nodes) <= _NODES_MAX:
        return f"nodes: wanted are 1 to {_NODES_MAX}"
    if not file.name_servers:
        return "name_servers: at least one is wanted"
    for address in [*file.name_servers, *(node.address for node in file.nodes)]:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            return f"{address!r} is no address such as 10.0.0.5:10911"
    names = [(node.group, node.node) for node in file.nodes]
    if len(set(names)) < len(names):
        return "two nodes have one group and name"
    unknown = sorted(set(file.commands) - _COMMANDS)
    if unknown:
        return f"commands.{unknown[0]} is unknown: known are {', '.join(sorted(_COMMANDS))}"
    some = _OF_PROCESSES & file.commands.keys()
    if some and some != _OF_PROCESSES:
        missing = ", ".join(sorted(_OF_PROCESSES - some))
        return f"commands: with {sorted(some)[0]} these are wanted too: {missing}"
    if not 0 < file.timeout_s <= 600:
        return "timeout_s must be above 0 and at most 600"
    return None
