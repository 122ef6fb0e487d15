"""A cluster of this project as somebody else would bring it: addresses, and commands to break it.

    python -m campaigns.brought_cluster DIR [--replicas 3] [--name-servers 1]

It starts the cluster in DIR, writes DIR/cluster.toml for `--world external --set file=`, prints
that path, and goes on until SIGINT or SIGTERM. The commands of the file are curl's: they go to a
port of this process, which kills, cuts and probes. Between brokers stand proxies of its own, since
two processes of one host can't be told apart by addresses.

Place in the data path: beside the laboratory, which knows of this cluster what the file says.
`campaigns.five_worlds` runs it.

Invariants: the answer to a command is what became of it, as of any other command of a person's:
`ok`, a state, a status, or a line of what went wrong with HTTP status 500; the port is of loopback,
and open only while the cluster is; nothing of the cluster outlives this process.

Source: docs/BRING-YOUR-OWN.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from chaos.cluster.cluster import plan_ports
from chaos.cluster.layout import lay_out
from chaos.links.base import Link, LinksError
from chaos.links.proxies import ProxyLinks
from chaos.systems.base import SystemFailedError
from chaos.systems.ledgermq import LedgermqSystem
from chaos.worlds.world import World

__all__ = ["BroughtCluster", "brought_world"]

_HOST: Final = "127.0.0.1"
_STATES: Final = {"gone": "gone", "T": "stopped"}
_PASSES: Final = {True: "passes", False: "cut", None: "unknown"}
_LINE_S_MAX: Final = 10.0


def brought_world(directory: Path, *, replicas: int, name_servers: int) -> World:
    """Return the cluster, laid out on free ports. Raises LayoutError, ProcessError."""
    ports = plan_ports(
        groups=1, replicas=replicas, name_servers=name_servers, namesrv_port=0, base_port=0
    )
    layout = lay_out(groups=1, replicas=replicas, name_servers=name_servers, ports=ports)
    system = LedgermqSystem(directory, layout)
    links = ProxyLinks(
        directory,
        layout,
        (),
        process_state=system.processes.state,
        toxiproxy_url=None,
        seed=secrets.randbits(31),
    )
    return World("brought", system, links, ())


class BroughtCluster:
    """A running world with a port for commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        processes = world.system.processes
        assert processes is not None
        self._actions: dict[str, Callable[[str], Awaitable[None]]] = {
            "kill": processes.kill,
            "restart": processes.restart,
            "pause": processes.pause,
            "resume": processes.resume,
        }
        self._state = processes.state

    async def answer(self, words: list[str]) -> str:
        """Carry a command out, and return its output. Raises ValueError for one that is none."""
        match words:
            case [action, name] if action in self._actions:
                await self._actions[action](name)
                return "ok"
            case ["state", name]:
                return _STATES.get(self._state(name), "running")
            case ["status", name]:
                status = await self._world.system.status(name)
                if status is None:
                    raise SystemFailedError(f"{name} does not answer")
                return json.dumps(msgspec.structs.asdict(status))
            case ["cut", who, whom]:
                await self._world.links.cut([Link(who=who, whom=whom)], f"{who} {whom}")
                return "ok"
            case ["heal", who, whom]:
                await self._world.links.heal(f"{who} {whom}")
                return "ok"
            case ["probe", who, whom]:
                [probe] = await self._world.links.probe([Link(who=who, whom=whom)])
                return _PASSES[probe.passes]
            case _:
                raise ValueError(f"no command: {' '.join(words)}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of HTTP: GET /COMMAND/NAME or /COMMAND/WHO/WHOM."""
        try:
            async with asyncio.timeout(_LINE_S_MAX):
                path = (await reader.readline()).decode("latin-1").split(" ")[1]
                while (await reader.readline()).strip():
                    pass
            try:
                status, text = "200 OK", await self.answer(path.strip("/").split("/"))
            except (LinksError, SystemFailedError, ValueError, KeyError) as error:
                status, text = "500 Internal Server Error", f"{type(error).__name__}: {error}"
            body = text.encode()
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, IndexError, asyncio.IncompleteReadError) as error:
            sys.stderr.write(f"brought_cluster: a request was not answered: {error}\n")
        finally:
            writer.close()


def cluster_file(world: World, url: str) -> str:
    """Return the file that describes the cluster, with commands that go to `url`."""
    curl = f"curl -fsS {url}"
    lines = [
        # By its own name a run would have to list logs and traces, which nobody hands over here.
        'system = "ledgermq-elsewhere"',
        f"version = {json.dumps(world.system.version)}",
        f"name_servers = {json.dumps(list(world.layout.name_server_addresses))}",
        f"remembers_keys = {str(world.system.dedupes).lower()}",
    ]
    for place in world.layout.brokers:
        lines += ["", "[[nodes]]"]
        lines += [f'group = "{place.group}"', f'node = "{place.node}"']
        lines += [f'address = "{place.address}"']
    lines += ["", "[commands]"]
    for name in ("kill", "restart", "pause", "resume", "state", "status"):
        lines.append(f"{name} = {json.dumps(f'{curl}/{name}/{{name}}')}")
    for name in ("cut", "heal"):
        lines.append(f"{name} = {json.dumps(f'{curl}/{name}/{{who}}/{{whom}}')}")
    probe = f"case $({curl}/probe/{{who}}/{{whom}}) in passes) ;; cut) exit 1;; *) exit 2;; esac"
    lines.append(f"probe = {json.dumps(probe)}")
    return "\n".join(lines) + "\n"


async def run(directory: Path, *, replicas: int, name_servers: int) -> None:
    """Run the cluster until a stop signal. Raises SystemFailedError, LinksError."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    world = brought_world(directory, replicas=replicas, name_servers=name_servers)
    try:
        await world.start()
        brought = BroughtCluster(world)
        async with await asyncio.start_server(brought.serve, _HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            path = directory / "cluster.toml"
            path.write_text(cluster_file(world, f"http://{_HOST}:{port}"), encoding="utf-8")
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
            await stopped.wait()
        await world.stop()
    finally:
        await world.abort()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--name-servers", type=int, default=1)
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(
            run(directory, replicas=arguments.replicas, name_servers=arguments.name_servers)
        )
    except (SystemFailedError, LinksError) as error:
        sys.stderr.write(f"brought_cluster: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
