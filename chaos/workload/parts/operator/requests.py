"""The requests of the part `operator` to one address, attempted once, and their answers' bodies.

Place in the data path: `chaos.workload.parts.common.leader_requests` is for those that only a
group's leader carries out.
"""

from __future__ import annotations

from typing import Any, Final

from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.errors import MalformedAnswerError
from remoting.errors import BodyError, RemotingError
from remoting.protocol import fastjson
from remoting.protocol.command import RemotingCommand

__all__ = ["OperatorRequests", "json_of"]

TIMEOUT_MS: Final = 2_000


class OperatorRequests:
    """Requests through one client's connections. All raise ClientError."""

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance

    async def any_at(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Return the answer, whatever its code."""
        try:
            return await self.instance.rpc.request(address, command, TIMEOUT_MS)
        except RemotingError as error:
            raise error_of_remoting(error, address) from error

    async def at(
        self, address: str, command: RemotingCommand, *, nothing: int | None = None
    ) -> RemotingCommand | None:
        """Return the answer of success; None where its code is `nothing`."""
        answer = await self.any_at(address, command)
        if answer.code == nothing:
            return None
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        return answer

    async def json_at(
        self, address: str, command: RemotingCommand, *, nothing: int | None = None
    ) -> dict[str, Any]:
        """Return the body of the answer; an empty one where its code is `nothing`."""
        answer = await self.at(address, command, nothing=nothing)
        return {} if answer is None else json_of(answer, address)

    async def at_name_server(self, name: str, address: str, command: RemotingCommand) -> str:
        """Have a name server carry a change out; return its name."""
        await self.at(address, command)
        return name


def json_of(answer: RemotingCommand, address: str) -> dict[str, Any]:
    """Return the body of an answer. Raises MalformedAnswerError."""
    try:
        return fastjson.decode(answer.body, dict[str, Any])
    except BodyError as error:
        raise MalformedAnswerError(f"answer of {address}: {error}") from error
