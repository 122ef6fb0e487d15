"""Requests that a follower hands on to its leader, since not every client can follow a hint.

Place in the data path: RocketMQ's clients take a group's leader from the route alone, which they
look up every 30 s; until then they go on asking the node that led before, and give up a send after
three refusals within milliseconds. So a follower asks its leader in their place, or waits a moment
for one where none stands, and hands the answer back as it is. Clients of ours follow the hint in
the refusal and are not helped: their language tells them apart. And `mqadmin deleteTopic` tells
each broker of a group, masters and slaves; here one deletion in the log is all.

Invariants:
- 14 is definite: the leader was never asked, or refused with 14 itself. A request that was handed
  over and not answered ends as unknown; it is never handed over a second time.
- A request is handed on once: what another replica has handed on is refused with the hint.
- How many are under way, their bytes and their time are bounded; without a leader for longer than
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
from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from raft.replicated_log import LogStatus
from remoting.errors import ConnectError, OverloadedError, RemotingError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand

__all__ = ["Forwarded", "Forwarding", "asked_by", "born_host_of", "is_forwarded"]

_TIMEOUT_MS: Final = 2_500  # RocketMQ's clients wait 3 s for a send
_LEADERLESS_MS_MAX: Final = 1_500
_LOOK_AGAIN_MS: Final = 50
_UNDER_WAY_MAX: Final = 2_048
_BYTES_MAX: Final = 64 * 1024 * 1024
_MARK: Final = "ledgermqForwarded"  # with who asked, as ip:port
_ACCOUNT: Final = "ledgermqAccount"  # under which it was let pass, where accounts are asked for
_NOT_LEADER: Final = "not the leader"


class Forwarded(enum.Enum):
    """Whether a follower asks its leader in the place of who sent a request.

    Forwarded is what a client or a tool asks of a leader while it works, except for what concerns
    its own connection (heartbeats, replies) and what any replica answers (pulls). Pops are refused:
    they wait long.
    """

    NEVER = "never"
    FOR_OTHERS = "for clients that do not follow a hint"
    ALWAYS = "always"  # tools send it to every replica, whatever they are written in


def is_forwarded(request: Request) -> bool:
    """Whether another replica has handed it on: then it goes no further."""
    return _MARK in request.fields


def asked_by(request: Request) -> tuple[str | None, str]:
    """Under whose account and for which ip:port another replica has handed it on; no account: it
    may do all. To be believed only where that replica's own signature is on it."""
    return request.fields.get(_ACCOUNT), request.fields.get(_MARK, "")


def born_host_of(request: Request) -> bytes:
    """Who sent a message, as records hold it: the peer, or whom a replica has asked for.

    Anybody can set the mark, so nothing may be granted for what it says.
    """
    told = request.fields.get(_MARK)
    if told is not None:
        with contextlib.suppress(ValueError):
            return host_bytes(told)
    return host_bytes(request.connection.peer)


class Forwarding:
    """Of one broker. `may_sign`: the leader takes requests that this broker has signed, or asks for
    no signatures."""

    def __init__(self, context: BrokerContext, tasks: TaskOwner, *, may_sign: bool) -> None:
        self._context = context
        self._tasks = tasks
        self._may_sign = may_sign
        self._under_way = 0
        self._bytes = 0
        # Loop time; None: there is a leader.
        self._led_until: float | None = asyncio.get_running_loop().time()
        self._changed = asyncio.Event()

    def takes(self, request: Request, forwarded: Forwarded) -> bool:
        """Whether this follower asks its leader in the place of who sent `request`."""
        command, context = request.command, self._context
        return (
            forwarded is not Forwarded.NEVER
            and (command.language != LANGUAGE_PYTHON or forwarded is Forwarded.ALWAYS)
            and not is_forwarded(request)
            and self._may_sign
            and context.remoting is not None
            and len(context.broker_addresses) > 1
            and self._under_way < _UNDER_WAY_MAX
            and self._bytes + len(command.body) <= _BYTES_MAX
        )

    def hand_on(self, request: Request, handle: Callable[[Request], None]) -> None:
        """Answer with what the leader says; `handle` is called where this node comes to lead."""
        self._under_way += 1
        self._bytes += len(request.command.body)
        self._tasks.spawn(self._run(request, handle))

    def role_changed(self, status: LogStatus) -> None:
        """The log's news."""
        now = asyncio.get_running_loop().time()
        if status.leader_id is not None:
            self._led_until = None
        elif self._led_until is None:
            self._led_until = now
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _run(self, request: Request, handle: Callable[[Request], None]) -> None:
        size = len(request.command.body)  # `handle` may let go of it
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
            if self._context.ready:
                handle(request)
                return
            left_ms = round((deadline - loop.time()) * 1000)
            address = self._leader_address()
            if left_ms > 0 and address is not None and await self._ask(request, address, left_ms):
                return
            if request.connection.closed and not request.command.is_oneway:
                return
            if loop.time() >= deadline or not self._may_come():
                self._refuse(request)
                return
            try:
                async with asyncio.timeout(_LOOK_AGAIN_MS / 1000):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _ask(self, request: Request, address: str, timeout_ms: int) -> bool:
        """Hand it on to `address`; False where that surely did nothing, and may be tried again."""
        fields = {**request.fields, _MARK: request.connection.peer}
        fields.pop(_ACCOUNT, None)
        if request.account is not None:
            fields[_ACCOUNT] = request.account
        asked = RemotingCommand(
            code=request.command.code,
            ext_fields=fields,
            body=request.command.body,
        )
        remoting = self._context.remoting
        assert remoting is not None, "checked before anything was handed on"
        try:
            answer = await remoting.request(address, asked, timeout_ms)
        except (ConnectError, OverloadedError):
            return False
        except RemotingError as error:
            request.reply(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
            return True
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and (answer.remark or "").startswith(
            _NOT_LEADER
        ):
            return False
        request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
        return True

    def _refuse(self, request: Request) -> None:
        request.refuse(
            RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, self._context.not_leader_remark())
        )

    def _leader_address(self) -> str | None:
        context = self._context
        leader = context.log.status().leader_id
        if leader is None or leader == context.config.node:
            return None
        return context.broker_addresses.get(leader)

    def _may_come(self) -> bool:
        """Whether a leader that can be asked is worth a wait: not after a long time without one,
        nor for one whose address is not known, as that of a member that was added later."""
        since = self._led_until
        if since is None:
            leader = self._context.log.status().leader_id
            return leader == self._context.config.node or self._leader_address() is not None
        return asyncio.get_running_loop().time() - since <= _LEADERLESS_MS_MAX / 1000
