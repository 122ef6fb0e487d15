"""The state of a RocketMQ broker as it tells it itself, in the laboratory's words.

Place in the data path: the watcher and the probes of faults read who leads from it. Requests go to
the broker's own address, past every proxy, so that a cut link hides nothing from the harness.

Role: GET_BROKER_CONFIG (26), `leader` with brokerId 0 and a brokerRole other than SLAVE. DLedger
and the controllers change both only once the broker has caught up, so a leader is ready. Term: the
file `currterm` of DLedger's store, or the last epoch of `epochFileCheckpoint`; else 0. Indexes:
GET_BROKER_RUNTIME_INFO (28), in bytes of the log. `last_index` and `commit_index` are its
commitLogMaxOffset, which DLedger takes from its committed index; `applied_index` is that less
dispatchBehindBytes.

Invariant: no answer within the deadline is None, never an invented status.

Source: RocketMQ's AdminBrokerProcessor, DLedgerRoleChangeHandler, ReplicasManager; DLedger's
MemberState.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import BrokerPlace
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["ask_rocketmq", "parse_status", "tell_master", "term_of"]

_SLAVE: Final = "SLAVE"


async def ask_rocketmq(
    client: RemotingClient, place: BrokerPlace, store: Path, *, pid: int, timeout_ms: int
) -> BrokerStatus | None:
    """Request the status; None where the broker does not answer in time or can't be reached."""
    bodies: list[bytes] = []
    try:
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO):
            answer = await client.request(place.address, RemotingCommand(code=code), timeout_ms)
            if answer.code != 0:
                return None
            bodies.append(answer.body)
    except RemotingError:
        return None  # down, paused or overloaded: the process state tells the caller which
    return parse_status(place, term_of(store), *bodies, pid=pid)


async def tell_master(
    client: RemotingClient, slave: str, *, master: str, replication: str, timeout_ms: int
) -> bool:
    """Tell the broker at `slave` where its master is; return whether it answered.

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


def parse_status(
    place: BrokerPlace, term: int, config: bytes, runtime: bytes, *, pid: int
) -> BrokerStatus | None:
    """Parse both answers; None where they are not what a RocketMQ broker answers."""
    try:
        settings = _properties(config.decode("utf-8"))
        table = json.loads(runtime)["table"]
        leads = settings["brokerId"] == "0" and settings["brokerRole"] != _SLAVE
        first, last = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        behind = int(table["dispatchBehindBytes"])
    except (ValueError, KeyError, TypeError):
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
        first_index=first,
        last_index=last,
        commit_index=last,
        applied_index=last - max(0, behind),
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
