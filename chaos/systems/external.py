"""A cluster that somebody else runs: known by its addresses, broken by the user's own commands.

Place in the data path: the system of the world `external`; `chaos.cluster.external_file` has the
file that describes it.

Invariants: nothing is started or stopped but by a command of the file; what a command did is what
the state command says afterwards.

Source: docs/BRING-YOUR-OWN.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.external_file import ExternalCluster
from chaos.cluster.layout import BrokerPlace
from chaos.systems.base import Part, SystemFailedError

__all__ = ["ExternalSystem"]

_STATES: Final = {"running": "S", "stopped": "T", "gone": "gone"}
_READY_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2


class ExternalSystem:
    """The cluster of a file. It runs before the experiment and after it."""

    stores: Final = None
    failpoints: Final = None
    clocks: Final = None
    members: Final = None
    replacements: Final = None
    settings: Final = None
    releases: Final = None

    def __init__(self, run: Path, cluster: ExternalCluster) -> None:
        self.run: Final = run
        self.name: Final = cluster.system
        self.version: Final = cluster.version
        self.dedupes: Final = cluster.dedupes
        self.layout: Final = cluster.layout
        self.parts: Final = frozenset({Part.PROCESSES} if cluster.has_processes else ())
        self._cluster = cluster
        self.processes: Final = _Processes(cluster) if cluster.has_processes else None

    async def start(self, dial: Mapping[str, Mapping[str, str]]) -> None:
        """Wait until each group has a leader; nothing is started."""
        deadline = asyncio.get_running_loop().time() + _READY_TIMEOUT_S
        groups = set(self.layout.groups)
        while True:
            names = [place.name for place in self.layout.brokers]
            answers = await asyncio.gather(*(self.status(name) for name in names))
            led = {answer.group for answer in answers if answer is not None and answer.ready}
            if led == groups:
                return
            if asyncio.get_running_loop().time() >= deadline:
                missing = ", ".join(sorted(groups - led))
                raise SystemFailedError(f"no leader of {missing} after {_READY_TIMEOUT_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Do nothing: the cluster is somebody else's."""

    async def abort(self) -> None:
        """Do nothing, as `stop`."""

    async def status(self, node: str) -> BrokerStatus | None:
        """Return what the status command prints; without one every first node leads its group."""
        place = self.layout.broker(node)
        if "status" not in self._cluster.commands:
            first = self.layout.groups[place.group][0]
            return _status(place, {"role": "leader" if place == first else "follower"})
        try:
            code, output = await self._cluster.run("status", **_places(self._cluster, node))
        except TimeoutError:
            return None
        if code != 0:
            return None
        try:
            answer = json.loads(output)
        except ValueError as error:
            raise SystemFailedError(f"the status of {node} is no JSON: {output[:80]!r}") from error
        if not isinstance(answer, dict):
            raise SystemFailedError(f"the status of {node} is no JSON object: {output[:80]!r}")
        return _status(place, answer)


class _Processes:
    def __init__(self, cluster: ExternalCluster) -> None:
        self._cluster = cluster
        self._states: dict[str, str] = {}

    async def kill(self, node: str) -> None:
        await self._act("kill", node, "gone")

    async def terminate(self, node: str, *, timeout_s: float) -> bool:
        raise SystemFailedError("an external cluster has no command to terminate a node")

    async def restart(self, node: str) -> None:
        await self._act("restart", node, None)

    async def pause(self, node: str) -> None:
        await self._act("pause", node, "T")

    async def resume(self, node: str) -> None:
        await self._act("resume", node, "S")

    def state(self, node: str) -> str:
        """Return the state that the state command printed last, after the last action; where that
        was not answered, the one that the action was to bring about."""
        return self._states.get(node, "S")

    def pid(self, node: str) -> int | None:
        return None  # no process of this host

    def has_opened_store(self, node: str) -> bool | None:
        return None

    async def _act(self, command: str, node: str, wanted: str | None) -> None:
        """Run the command, then the state command, which alone says what has become of it."""
        places = _places(self._cluster, node)
        if wanted is not None:
            # Until then it may be so: a heal must not leave a node behind of which nobody knows.
            self._states[node] = wanted
        await self._cluster.succeed(command, SystemFailedError, **places)
        text = await self._cluster.succeed("state", SystemFailedError, **places)
        if text not in _STATES:
            known = ", ".join(_STATES)
            raise SystemFailedError(f"the state of {node} is {text[:80]!r}: wanted is {known}")
        self._states[node] = _STATES[text]
        if wanted is not None and self._states[node] != wanted:
            raise SystemFailedError(f"{node} is {text} after {command}")


def _places(cluster: ExternalCluster, node: str) -> dict[str, str]:
    place = next((p for p in cluster.layout.brokers if p.name == node), None)
    return {
        "name": node,
        "group": "" if place is None else place.group,
        "node": node if place is None else place.node,
        "host": cluster.hosts[node],
    }


def _status(place: BrokerPlace, answer: Mapping[str, Any]) -> BrokerStatus:
    """Return the status; what the cluster does not tell is 0, or follows from the role."""
    role = str(answer.get("role", "follower"))
    return BrokerStatus(
        group=place.group,
        node=place.node,
        pid=0,
        address=place.address,
        role=role,
        leader=str(answer.get("leader", place.node if role == "leader" else "unknown")),
        ready=bool(answer.get("ready", role == "leader")),
        term=_number(answer, "term", place),
        first_index=_number(answer, "first_index", place),
        last_index=_number(answer, "last_index", place),
        commit_index=_number(answer, "commit_index", place),
        applied_index=_number(answer, "applied_index", place),
    )


def _number(answer: Mapping[str, Any], name: str, place: BrokerPlace) -> int:
    value = answer.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SystemFailedError(f"the status of {place.name} has a {name} that is no integer")
    return value
