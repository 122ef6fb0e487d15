"""Forwarding of requests by a follower to its leader, since not every client can follow a hint.

Place in the data path: RocketMQ's clients take a group's leader from the route alone, which they
request every 30 s; until then they keep sending to the node that led before, and give up a send
after three refusals within milliseconds. So a follower forwards their requests to its leader, or
waits a moment for one if there is none, and returns the answer unchanged. Clients of ours follow
the hint in the refusal, and their requests are not forwarded: their language identifies them. And
`mqadmin deleteTopic` sends to each broker of a group, masters and slaves; here one deletion in the
log is enough.

Invariants:
- 14 is definite: the request never reached the leader, or the leader refused it with 14 itself. A
  request that was forwarded and not answered ends as unknown; it is never forwarded a second time.
- A request is forwarded once: one that another replica has forwarded is refused with the hint.
- How many are in flight, their bytes and their time are bounded; without a leader for longer than
  an election takes, requests are refused at once, so that clients turn to another group.

Source: no RocketMQ class; its DLedger followers refuse with 14.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable
from typing import Final

from broker.entry.record import host_bytes
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import Request
from broker.request.tasks import TaskOwner
from raft.replicated_log import LogStatus
from remoting.errors import ConnectError, OverloadedError, RemotingError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand
from remoting.protocol.leader_hint import is_not_leader

__all__ = ["Forwarded", "Forwarding", "born_host_of", "is_forwarded", "requester_of"]

_TIMEOUT_MS: Final = 2_500  # RocketMQ's clients wait 3 s for a send
_LEADERLESS_MS_MAX: Final = 1_500
_RETRY_MS: Final = 50
_UNDER_WAY_MAX: Final = 2_048
_BYTES_MAX: Final = 64 * 1024 * 1024
_MARK: Final = "ledgermqForwarded"  # its value: the sender's ip:port
_ACCOUNT: Final = "ledgermqAccount"  # under which it was authorised, where access control is on


class Forwarded(enum.Enum):
    """Kinds of requests by whether a follower forwards them to its leader.

    Forwarded are requests of clients and tools that only a leader serves, except those about the
    client's own connection (heartbeats, replies). Any replica answers pulls. Pops are refused: they
    wait long.
    """

    NEVER = "never"
    FOR_OTHERS = "for clients that do not follow a hint"
    ALWAYS = "always"  # tools in any language send it to every replica


def is_forwarded(request: Request) -> bool:
    """Whether another replica has forwarded the request: then it is not forwarded again."""
    return _MARK in request.fields


def requester_of(request: Request) -> tuple[str | None, str]:
    """Return the account (None: it may do all) and the ip:port for which another replica has
    forwarded a request. To be trusted only if that replica's own signature is on it."""
    return request.fields.get(_ACCOUNT), request.fields.get(_MARK, "")


def born_host_of(request: Request) -> bytes:
    """Return a message's sender as records hold it: the peer, or that of the forwarding replica.

    Anybody can set the mark, so nothing may be granted for what it says.
    """
    marked = request.fields.get(_MARK)
    if marked is not None:
        with contextlib.suppress(ValueError):
            return host_bytes(marked)
    return host_bytes(request.connection.peer)


class Forwarding:
    """Forwarding of one broker; `may_sign`: the leader accepts requests that this broker has
    signed, or needs no signatures."""

    def __init__(
        self,
        replica: Replica,
        leadership: Leadership,
        desk: Desk,
        tasks: TaskOwner,
        *,
        may_sign: bool,
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._tasks = tasks
        self._may_sign = may_sign
        self._under_way = 0
        self._bytes = 0
        # Loop time; None: there is a leader.
        self._led_until: float | None = asyncio.get_running_loop().time()
        self._changed = asyncio.Event()

    def takes(self, request: Request, forwarded: Forwarded) -> bool:
        """Whether this follower forwards `request` to its leader."""
        command = request.command
        return (
            forwarded is not Forwarded.NEVER
            and (command.language != LANGUAGE_PYTHON or forwarded is Forwarded.ALWAYS)
            and not is_forwarded(request)
            and self._may_sign
            and self._desk.remoting is not None
            and len(self._replica.broker_addresses) > 1
            and self._under_way < _UNDER_WAY_MAX
            and self._bytes + len(command.body) <= _BYTES_MAX
            and not self._leadership.is_orphan  # nobody will be elected
        )

    def forward(self, request: Request, handle: Callable[[Request], None]) -> None:
        """Answer as the leader does; call `handle` if this node becomes the leader meanwhile."""
        self._under_way += 1
        self._bytes += len(request.command.body)
        self._tasks.spawn(self._run(request, handle))

    def role_changed(self, status: LogStatus) -> None:
        """Note a change of the role or the leader, and retry waiting requests."""
        now = asyncio.get_running_loop().time()
        if status.leader_id is not None:
            self._led_until = None
        elif self._led_until is None:
            self._led_until = now
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _run(self, request: Request, handle: Callable[[Request], None]) -> None:
        size = len(request.command.body)  # `handle` may drop it
        try:
            await self._until_answered(request, handle)
        finally:
            self._under_way -= 1
            self._bytes -= size

    async def _until_answered(self, request: Request, handle: Callable[[Request], None]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_MS / 1000
        while True:
            changed = self._changed
            if self._leadership.ready:
                handle(request)
                return
            left_ms = round((deadline - loop.time()) * 1000)
            address = self._leader_address()
            if left_ms > 0 and address is not None and await self._try(request, address, left_ms):
                return
            if request.connection.closed and not request.command.is_oneway:
                return
            if loop.time() >= deadline or not self._awaits_leader():
                self._refuse(request)
                return
            try:
                async with asyncio.timeout(_RETRY_MS / 1000):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _try(self, request: Request, address: str, timeout_ms: int) -> bool:
        """Forward a request to `address`; False if that surely had no effect: it may be retried."""
        fields = {**request.fields, _MARK: request.connection.peer}
        fields.pop(_ACCOUNT, None)
        if request.account is not None:
            fields[_ACCOUNT] = request.account
        command = RemotingCommand(
            code=request.command.code,
            ext_fields=fields,
            body=request.command.body,
        )
        remoting = self._desk.remoting
        assert remoting is not None, "checked before anything was forwarded"
        try:
            answer = await remoting.request(address, command, timeout_ms)
        except (ConnectError, OverloadedError):
            return False
        except RemotingError as error:
            request.reply(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
            return True
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and is_not_leader(answer.remark):
            return False
        request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
        return True

    def _refuse(self, request: Request) -> None:
        request.refuse(self._leadership.not_leader())

    def _leader_address(self) -> str | None:
        replica = self._replica
        leader = replica.log.status().leader_id
        if leader is None or leader == replica.config.node:
            return None
        return replica.broker_addresses.get(leader)

    def _awaits_leader(self) -> bool:
        """Whether to wait for a leader that can be reached: not after a long time without one, nor
        for one whose address is not known, as that of a member that was added later."""
        since = self._led_until
        if since is None:
            leader = self._replica.log.status().leader_id
            return leader == self._replica.config.node or self._leader_address() is not None
        return asyncio.get_running_loop().time() - since <= _LEADERLESS_MS_MAX / 1000
