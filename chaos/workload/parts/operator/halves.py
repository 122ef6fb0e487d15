"""Halves with a time of their own that are committed while settings would refuse what they ask for:
they were taken, so their commit counts, and they come when their time has come.

Place in the data path: the part `operator` does so when all others have ended, since settings are
of all that a broker serves; raw requests to the leader, UPDATE_BROKER_CONFIG at each replica.

Invariants: halves are sent under the usual settings, and each is committed under one that forbids
its delay; the setting is put back behind it, whatever was answered. Nobody else uses the topic,
and rules take it for one of the system's own. RocketMQ refuses such a commit (its hook checks the
message a second time), so where the leader is not one of ours the halves are rolled back.

Source: docs/TRANSACTIONS.md; RocketMQ EndTransactionProcessor.sendFinalMessage, HookUtils
.handleScheduleMessage; promises G1 and G4.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.workload.expectations import Expectations
from chaos.workload.messages import wall_ms
from chaos.workload.parts.common.drill import UNLISTED, batch_fields
from chaos.workload.parts.common.leader_requests import create_topic_command, request_leader
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.common.topic_admin import PERM_READ_WRITE
from chaos.workload.parts.operator.broker_settings import BrokerSettings
from chaos.workload.parts.operator.requests import OperatorRequests
from client.errors import ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.property_names import PropertyName

__all__ = ["HalfEffects"]

TIMEOUT_MS: Final = 3_000
DELAY_S: Final = 4
LATE_S: Final = 4.0
STAYS_S: Final = 0.5  # for which nothing more may come
EARLY_S: Final = 0.05  # of clocks' grain
POLL_S: Final = 0.1
_COMMIT: Final = 8
_ROLLBACK: Final = 12
_PREPARED: Final = 4  # of a send's sysFlag
_WITH_SUBSCRIPTION: Final = 4  # of a pull's sysFlag
_PULLED: Final = frozenset({0, 19, 20, 21})
_UNSERVED: Final = 3
_NOT_NOW: Final = frozenset({2, 11, 14, 215})  # of a broker that does not lead, or is busy
_FORBIDDING: Final[Mapping[str, tuple[str, str]]] = {
    "timerMaxDelaySec": ("1", str(3 * 86_400)),
    "timerWheelEnable": ("false", "true"),
}
"""Settings, what forbids the delay, and what is usual."""
_DELAYS: Final = (
    (PropertyName.TIMER_DELAY_SEC, str(DELAY_S)),
    (PropertyName.TIMER_DELAY_MS, str(DELAY_S * 1_000)),
)


class _Answers:
    def __contains__(self, code: object) -> bool:
        return code not in _NOT_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """What a decision names it by, its body, and when it was sent, of the loop's clock."""

    fields: Mapping[str, str]
    message_id: str
    body: bytes
    sent_s: float


class HalfEffects:
    """Some halves at one broker group."""

    def __init__(
        self,
        requests: OperatorRequests,
        settings: BrokerSettings,
        expectations: Expectations,
        *,
        broker_group: str,
        rng: random.Random,
    ) -> None:
        self._requests = requests
        self._settings = settings
        self._expectations = expectations
        self._group = broker_group
        self._topic = f"{UNLISTED}operator-halves-{broker_group}"
        self._producers = f"operator-halves-{broker_group}"
        self._rng = rng
        self._began_ns = 0

    async def show(self) -> None:
        """Send a half for each setting, commit them, and see what comes."""
        self._began_ns = time.monotonic_ns()
        try:
            await self._request(create_topic_command(self._topic, queues=1, perm=PERM_READ_WRITE))
            names = self._rng.sample(sorted(_FORBIDDING), len(_FORBIDDING))
            halves = {name: await self._send(number) for number, name in enumerate(names)}
            if not await self._is_ours(halves[names[0]]):
                for half in halves.values():
                    await self._end(half, _ROLLBACK)
                return
            committed = [half for name, half in halves.items() if await self._commit(name, half)]
            await self._hold_times(committed)
        except ClientError:
            return  # without an answer nothing is compared

    async def _commit(self, name: str, half: _Half) -> bool:
        """Commit a half while a setting forbids it; return whether that was requested. Raises
        ClientError."""
        forbids, usual = _FORBIDDING[name]
        try:
            if not await self._settings.set({name: forbids}):
                await self._end(half, _ROLLBACK)
                return False
            code = await self._end(half, _COMMIT)
        finally:
            await self._settings.set({name: usual})
        self._hold(f"commit of a half that waits, where {name} is {forbids}", "0", str(code))
        return True

    async def _hold_times(self, halves: list[_Half]) -> None:
        """Hold that each comes, once, and not before its time. Raises ClientError."""
        loop = asyncio.get_running_loop()
        came: list[tuple[bytes, float]] = []
        end_s = loop.time() + DELAY_S + LATE_S
        wanted = {half.body for half in halves}
        while not wanted <= {body for body, _ in came} and loop.time() < end_s:
            await asyncio.sleep(POLL_S)
            await self._pull(came)
        await asyncio.sleep(STAYS_S)
        await self._pull(came)
        for half in halves:
            waits_s = [at_s - half.sent_s for body, at_s in came if body == half.body]
            shown = ["in time" if each > DELAY_S - EARLY_S else f"{each:.3f} s" for each in waits_s]
            self._hold(f"what comes of {half.body.decode()}", "['in time']", str(shown))

    # Requests ------------------------------------------------------------------------------------

    async def _send(self, number: int) -> _Half:
        """Send a half with a delay. Raises ClientError."""
        key = f"{self._producers}-{number}-{self._rng.getrandbits(32):x}"
        name, value = self._rng.choice(_DELAYS)
        properties = {
            PropertyName.TRAN_MSG: "true",
            PropertyName.PGROUP: self._producers,
            PropertyName.UNIQ_KEY: key,
            name: value,
        }
        block = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = batch_fields(self._producers, self._topic, self._group)
        fields |= {"f": _PREPARED, "g": wall_ms(), "i": block, "m": "false"}
        sent_s = asyncio.get_running_loop().time()
        body = f"half {number} with {name}".encode()
        command = _command(RequestCode.SEND_MESSAGE_V2, fields, body)
        answer = await self._request(command, is_needed=True)
        message_id = answer.ext_fields["msgId"]
        ended = {
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": str(int(message_id[-16:], 16)),
            "msgId": key,
            "producerGroup": self._producers,
            "fromTransactionCheck": "false",
            "bname": self._group,
        }
        return _Half(fields=ended, message_id=message_id, body=body, sent_s=sent_s)

    async def _is_ours(self, half: _Half) -> bool:
        command = _command(RequestCode.LEDGERMQ_SHOW_HALF, {"msgId": half.message_id})
        return (await self._request(command)).code != _UNSERVED

    async def _end(self, half: _Half, decision: int) -> int:
        """Send a decision; return the answer's code. Raises ClientError."""
        fields = {**half.fields, "commitOrRollback": decision}
        return (await self._request(_command(RequestCode.END_TRANSACTION, fields))).code

    async def _pull(self, came: list[tuple[bytes, float]]) -> None:
        """Read on behind what has come. Raises ClientError."""
        fields = {
            "topic": self._topic,
            "queueId": 0,
            "bname": self._group,
            "consumerGroup": "operator-readers",
            "queueOffset": len(came),
            "maxMsgNums": 32,
            "sysFlag": _WITH_SUBSCRIPTION,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 0,
            "subscription": "*",
        }
        answer = await self._request(_command(RequestCode.PULL_MESSAGE, fields))
        now_s = asyncio.get_running_loop().time()
        if answer.code in _PULLED:
            came += [(record.body, now_s) for record in records_of(answer)]

    async def _request(
        self, command: RemotingCommand, *, is_needed: bool = False
    ) -> RemotingCommand:
        """Return the leader's answer; where it `is_needed`, one of success. Raises ClientError."""
        answer, _ = await request_leader(
            self._requests.instance,
            self._group,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=frozenset({0}) if is_needed else _Answers(),
        )
        return answer

    def _hold(self, what: str, expected: str, answered: str) -> None:
        self._expectations.hold(
            f"{what}, at {self._group}",
            expected=expected,
            answered=answered,
            topic=self._topic,
            calm_since=self._began_ns,
        )


def _command(code: RequestCode, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(
        code=code, ext_fields={name: str(value) for name, value in fields.items()}, body=body
    )
