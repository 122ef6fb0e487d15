"""The status of a broker: request 60001, the laboratory's and a person's view of a node.

Place in the data path: `chaos.cluster.cluster` prints it, the laboratory's watcher and the probes
of faults read role, term and progress from it. It goes to the node's own address, past every proxy,
so a cut link never hides a node's state from the harness.

Invariant: no answer within the deadline is None, never an invented status.

Source: the LEDGERMQ_STATUS request of this project's broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chaos.cluster.access import PLAIN, Access
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand

__all__ = ["STATUS_CODE", "BrokerStatus", "parse_status", "query", "query_all"]

STATUS_CODE = 60001
TIMEOUT_MS = 1000


class _WrongClock(msgspec.Struct, frozen=True):
    off_ms: int


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one broker.

    `ready`: leader whose no-op is applied, so it serves. Indexes as in Raft. `voters` and
    `learners` as this node knows them; `phase` as in `raft.replicated_log`.
    """

    group: str
    node: str
    pid: int
    address: str
    role: str
    term: int
    leader: str | None
    ready: bool
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    phase: str = "serving"
    release: str | None = None  # version and digest of its code; None: from before it said so
    wrong_clock: _WrongClock | None = None  # None: nobody can put it wrong

    @property
    def clock_off_ms(self) -> int | None:
        """How far its wall clock was put wrong; None: nobody can."""
        return None if self.wrong_clock is None else self.wrong_clock.off_ms


async def query(
    client: RemotingClient, address: str, *, timeout_ms: int = TIMEOUT_MS
) -> BrokerStatus | None:
    """Request the status; None where the node does not answer in time or can't be reached."""
    try:
        answer = await client.request(address, RemotingCommand(code=STATUS_CODE), timeout_ms)
    except RemotingError:
        return None  # down, paused or overloaded: the process state tells the caller which
    return parse_status(answer.body) if answer.code == 0 else None


async def query_all(
    addresses: Sequence[str], access: Access = PLAIN, *, timeout_ms: int = TIMEOUT_MS
) -> dict[str, BrokerStatus]:
    """Return answers by address, over connections made for this call; silent nodes are left out."""
    client = access.client()
    try:
        answers = await asyncio.gather(
            *(query(client, address, timeout_ms=timeout_ms) for address in addresses)
        )
    finally:
        await client.close()
    return {
        address: answer
        for address, answer in zip(addresses, answers, strict=True)
        if answer is not None
    }


def parse_status(body: bytes) -> BrokerStatus | None:
    """Parse the status; None where the body is not what our brokers answer."""
    try:
        return msgspec.json.decode(body, type=BrokerStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
