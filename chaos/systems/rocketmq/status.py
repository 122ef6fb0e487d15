"""The state of a RocketMQ broker as it tells it itself, in the laboratory's words.

Place in the data path: the watcher and the probes of faults read who leads from it. Requests go to
the broker's own address, past every proxy, so that a cut link hides nothing from the harness.

Role: GET_BROKER_CONFIG (26), `leader` with brokerId 0 and a brokerRole other than SLAVE. DLedger
and the controllers change both only once the broker has caught up, so a leader is ready. Term: the
file `currterm` of DLedger's store, or the last epoch of `epochFileCheckpoint`; else 0. Indexes:
GET_BROKER_RUNTIME_INFO (28), in bytes of the log. `last_index` and `commit_index` are its
commitLogMaxOffset, which DLedger takes from its committed index; `applied_index` is that less
dispatchBehindBytes.

Positions have an age. The second request looks at disks and timers, and takes a broker seconds
where its machine is busy, while the first takes milliseconds: who waited for both would see no
leader where one serves. So the role is that of now, and positions are the last that the same
process told, AGE_S_MAX ago at most; they are asked for anew with each status.

Invariant: no answer within the deadline is None, never an invented status, and neither are
positions of another process or of longer ago.

Source: RocketMQ's AdminBrokerProcessor, DLedgerRoleChangeHandler, ReplicasManager; DLedger's
MemberState.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import BrokerPlace
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["StatusReader", "parse_positions", "parse_status", "send_master", "term_of"]

AGE_S_MAX: Final = 12.0
POSITIONS_TIMEOUT_MS: Final = 10_000
_SLAVE: Final = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """How far a broker's log reaches, in bytes."""

    first: int
    last: int
    applied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Positions that a process reported, and when (of the event loop's clock)."""

    pid: int
    at_s: float
    positions: Positions


class StatusReader:
    """Requests the status of brokers. Close it: it may be querying positions."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._readings: dict[str, _Reading] = {}  # by process name
        self._queries: dict[str, asyncio.Task[None]] = {}

    async def status(
        self, place: BrokerPlace, store: Path, *, pid: int, timeout_ms: int
    ) -> BrokerStatus | None:
        """Return the status; None where the broker does not answer in time or can't be reached."""
        query = self._queries.get(place.name)
        if query is None or query.done():
            query = asyncio.create_task(self._query_positions(place, pid), name=place.name)
            self._queries[place.name] = query
        config = await self._body(place, RequestCode.GET_BROKER_CONFIG, timeout_ms)
        if config is None:
            return None
        positions = self._known(place, pid)
        if positions is None:
            await asyncio.wait([query], timeout=timeout_ms / 1000)
            positions = self._known(place, pid)
        if positions is None:
            return None
        return parse_status(place, term_of(store), config, positions, pid=pid)

    async def close(self) -> None:
        """Stop. The client is its owner's."""
        tasks = list(self._queries.values())
        self._queries.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _known(self, place: BrokerPlace, pid: int) -> Positions | None:
        reading = self._readings.get(place.name)
        now_s = asyncio.get_running_loop().time()
        if reading is None or reading.pid != pid or now_s - reading.at_s > AGE_S_MAX:
            return None
        return reading.positions

    async def _query_positions(self, place: BrokerPlace, pid: int) -> None:
        at_s = asyncio.get_running_loop().time()
        body = await self._body(place, RequestCode.GET_BROKER_RUNTIME_INFO, POSITIONS_TIMEOUT_MS)
        positions = None if body is None else parse_positions(body)
        if positions is not None:
            self._readings[place.name] = _Reading(pid=pid, at_s=at_s, positions=positions)

    async def _body(self, place: BrokerPlace, code: RequestCode, timeout_ms: int) -> bytes | None:
        try:
            answer = await self._client.request(
                place.address, RemotingCommand(code=code), timeout_ms
            )
        except RemotingError:
            return None  # down, paused or overloaded: the process state tells the caller which
        return answer.body if answer.code == 0 else None


async def send_master(
    client: RemotingClient, slave: str, *, master: str, replication: str, timeout_ms: int
) -> bool:
    """Send the broker at `slave` where its master is; return whether it answered.

    `replication`: where to copy the log from. RocketMQ 4.9 does not know the request, and needs
    none: it answers all the same.
    """
    request = RemotingCommand(
        code=RequestCode.EXCHANGE_BROKER_HA_INFO,
        ext_fields={
            "masterHaAddress": replication,
            "masterAddress": master,
            "masterFlushOffset": "0",
        },
    )
    try:
        await client.request(slave, request, timeout_ms)
    except RemotingError:
        return False  # asked again with the next status
    return True


def parse_positions(runtime: bytes) -> Positions | None:
    """Parse the answer that has positions; None where it is not what a RocketMQ broker answers."""
    try:
        table = json.loads(runtime)["table"]
        first, last = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        behind = int(table["dispatchBehindBytes"])
    except (ValueError, KeyError, TypeError):
        return None
    return Positions(first=first, last=last, applied=last - max(0, behind))


def parse_status(
    place: BrokerPlace, term: int, config: bytes, positions: Positions, *, pid: int
) -> BrokerStatus | None:
    """Parse the answer that has the role; None where it is not what a RocketMQ broker answers."""
    try:
        settings = _properties(config.decode("utf-8"))
        leads = settings["brokerId"] == "0" and settings["brokerRole"] != _SLAVE
    except (ValueError, KeyError):
        return None
    return BrokerStatus(
        group=place.group,
        node=place.node,
        pid=pid,
        address=place.address,
        role="leader" if leads else "follower",
        term=term,
        leader=place.node if leads else None,
        ready=leads,
        first_index=positions.first,
        last_index=positions.last,
        commit_index=positions.last,
        applied_index=positions.applied,
    )


def term_of(store: Path) -> int:
    """Return the term of DLedger, or the epoch of Controller mode, that the store tells; else 0."""
    for path in sorted(store.glob("dledger-*/currterm")):
        word = _properties(_text(path)).get("currTerm", "")
        if word.isdecimal():
            return int(word)
    lines = _text(store / "epochFileCheckpoint").splitlines()
    word = lines[-1].partition("-")[0] if len(lines) > 2 else ""
    return int(word) if word.isdecimal() else 0


def _text(path: Path) -> str:
    """Return the file's text; empty while RocketMQ replaces it, by deleting it first."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _properties(text: str) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
