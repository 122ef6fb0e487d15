"""Users that may administrate the cluster without being super users, in the part `accounts`: what
is a super user's they may not change, and super users they may not make.

Place in the data path: AUTH_CREATE_USER, AUTH_UPDATE_USER and AUTH_DELETE_USER at one group's
leader, signed by a normal user with all rights on the cluster, when the part's own users have
ended.

Invariants: each request that is to be refused leaves the users as they were, which an administrator
queries; answers are judged where no fault touches the drill.

Source: RocketMQ AuthAdminProcessor (only a super user creates, changes or deletes one); M12.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.parts.accounts.changes import (
    PASSWORD,
    TIMEOUT_MS,
    AnyAnswer,
    change_at_leader,
)
from chaos.workload.parts.accounts.model import CLUSTER, TOPIC
from chaos.workload.parts.common.leader_requests import request_leader
from client.connection.instance import ClientInstance
from client.errors import ClientError
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SuperUsers"]

_OTHER: Final = "another-one"
_REFUSED: Final = ResponseCode.NO_PERMISSION.value
_C: Final = RequestCode


class SuperUsers:
    """A super user, one who administrates, and one of no rank, at one broker group. `instance`: of
    an administrator."""

    def __init__(
        self,
        context: WorkContext,
        instance: ClientInstance,
        slot: Slot,
        expectations: Expectations,
        *,
        group: str,
    ) -> None:
        self._context = context
        self._instance = instance
        self._slot = slot
        self._expectations = expectations
        self._group = group
        self._began_ns = time.monotonic_ns()
        self._super, self._helper, self._plain, self._new = (
            f"{TOPIC}-{name}-{group}" for name in ("super", "helper", "plain", "new")
        )

    async def work(self) -> None:
        """Make the users, try what the one in the middle may, and remove them."""
        self._began_ns = time.monotonic_ns()
        try:
            await self._work()
        except ClientError:
            return  # nobody knows what these users may

    async def _work(self) -> None:
        for name, kind in ((self._super, "Super"), (self._helper, "Normal")):
            body = {"username": name, "password": PASSWORD, "userType": kind}
            await self._change(_C.AUTH_CREATE_USER, body, username=name)
        entry = {
            "resource": f"Cluster:{CLUSTER}",
            "actions": ["All"],
            "sourceIps": [],
            "decision": "Allow",
        }
        policies = {"policies": [{"policyType": "Custom", "entries": [entry]}]}
        await self._change(_C.AUTH_CREATE_ACL, policies, subject=f"User:{self._helper}")
        settings = ProducerSettings(
            timeout_ms=TIMEOUT_MS,
            instance=self._slot.instance_settings(Signer(self._helper, PASSWORD)),
        )
        async with Producer(
            "accounts-producers", self._context.name_servers, self._slot.dial, settings=settings
        ) as helper:
            for code, name, said, is_allowed in self._requests():
                await self._request(helper.instance, code, name, said, is_allowed=is_allowed)
        await self._hold_super()
        for name in (self._super, self._helper, self._plain, self._new):
            await self._change(_C.AUTH_DELETE_USER, None, username=name)

    def _requests(self) -> Sequence[tuple[RequestCode, str, Mapping[str, str], bool]]:
        """Return codes with the user that each is about, what it says of the user, and whether it
        is allowed."""
        create, update, delete = _C.AUTH_CREATE_USER, _C.AUTH_UPDATE_USER, _C.AUTH_DELETE_USER
        known = {"password": PASSWORD}
        return (
            (create, self._plain, {**known, "userType": "Normal"}, True),
            (create, self._plain, {"password": _OTHER, "userType": "Normal"}, False),  # it is there
            (create, self._new, {**known, "userType": "Super"}, False),
            (update, self._super, {"userType": "Normal"}, False),
            (update, self._super, {"password": _OTHER}, False),
            (update, self._super, {"userStatus": "disable"}, False),
            (update, self._plain, {"userType": "Super"}, False),
            (update, self._helper, {"userType": "Super"}, False),
            (update, self._plain, {"password": _OTHER}, True),
            (delete, self._super, {}, False),
            (delete, self._plain, {}, True),
        )

    async def _request(
        self,
        instance: ClientInstance,
        code: RequestCode,
        name: str,
        body: Mapping[str, str],
        *,
        is_allowed: bool,
    ) -> None:
        """Have the normal user send a request; hold whether it was refused. Raises ClientError."""
        data = json.dumps({"username": name, **body}).encode() if body else b""
        command = RemotingCommand(code=code, ext_fields={"username": name}, body=data)
        answer, _ = await request_leader(
            instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS, accept=AnyAnswer()
        )
        said = " ".join(f"{key}={value}" for key, value in body.items())
        self._expectations.hold(
            f"{code.name.lower()} of {name} {said}, by one who is no super user",
            expected="allowed" if is_allowed else "refused",
            answered="refused" if answer.code == _REFUSED else "allowed",
            topic=TOPIC,
            calm_since=self._began_ns,
        )

    async def _hold_super(self) -> None:
        """Hold what the leader shows of the super user. Raises ClientError."""
        command = RemotingCommand(code=_C.AUTH_GET_USER, ext_fields={"username": self._super})
        answer, _ = await request_leader(
            self._instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS
        )
        shown = json.loads(answer.body) if answer.body else {}
        self._expectations.hold(
            f"type of {self._super} behind requests of one who is no super user",
            expected="Super",
            answered=shown.get("userType"),
            topic=TOPIC,
            calm_since=self._began_ns,
        )

    async def _change(
        self, code: RequestCode, body: Mapping[str, object] | None, **fields: str
    ) -> None:
        """Have the leader carry a change out. Raises ClientError."""
        await change_at_leader(self._instance, self._group, code, body, **fields)
