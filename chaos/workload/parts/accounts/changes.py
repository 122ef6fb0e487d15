"""Changes of users and permissions at a group's leader, and what counts as an answer to a request.

Place in the data path: `policies` and `super_users` make their users by it, and ask by theirs.

Invariant: a code that says that a broker can't answer now is no answer; every other one is, since
all but one of them say that the request was allowed.

Source: RocketMQ AuthAdminProcessor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["PASSWORD", "TIMEOUT_MS", "AnyAnswer", "change_at_leader"]

TIMEOUT_MS: Final = 2_000
PASSWORD: Final = "the-right-one"  # noqa: S105 - of users that are gone when their drill is over
_NO_ANSWERS: Final = frozenset({2, 11, 14, 215})


class AnyAnswer:
    """Accepts every code but those of a broker that can't answer now."""

    def __contains__(self, code: object) -> bool:
        return code not in _NO_ANSWERS


async def change_at_leader(
    instance: ClientInstance,
    group: str,
    code: RequestCode,
    body: Mapping[str, object] | None,
    **fields: str,
) -> None:
    """Have the leader of a broker group carry a change out. Raises ClientError."""
    data = b"" if body is None else json.dumps(body).encode()
    command = RemotingCommand(code=code, ext_fields=fields, body=data)
    await request_leader(instance, group, lambda: command, timeout_ms=TIMEOUT_MS)
