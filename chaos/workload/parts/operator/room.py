"""What settings about the disk do, in the part `operator`: room for messages, and what is kept.

Place in the data path: UPDATE_BROKER_CONFIG at each replica of a broker group; behind it sends to
the leader, which are to be refused for another reason in any case, and GET_BROKER_RUNTIME_INFO,
which says where the log begins.

Invariants: it runs when all others have ended, since nothing is stored while there is no room;
nothing is ever stored by what it asks; messages are deleted only where the section wants it, and
only where the log has whole segments to delete.

Source: RocketMQ MessageStoreConfig, DefaultMessageStore.CleanCommitLogService.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.cluster.layout import BrokerPlace
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.operator.broker_settings import BrokerSettings
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RoomEffects"]

TIMEOUT_MS: Final = 2_000
WITHIN_S: Final = 3.0  # brokers look at the disk ten times a second
RETAINED_S: Final = 8.0  # and delete once a second
POLL_S: Final = 0.2
SEGMENTS_MIN: Final = 2  # that the log has, so that one at least is closed
_FULL: Final = ResponseCode.SERVICE_NOT_AVAILABLE.value
_TOO_LARGE: Final = ResponseCode.MESSAGE_ILLEGAL.value
_USUAL: Final = {"diskSpaceWarningLevelRatio": "99", "maxMessageSize": str(4 << 20)}
_RETAINING: Final = {
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "1000",
    "diskSpaceCleanForciblyRatio": "1000",
    "cleanFileForciblyEnable": "true",
}
# Each would delete, were it not for what it is set with: what is not as old as is to be kept goes
# by force alone.
_STILL_RETAINED: Final[Sequence[Mapping[str, str]]] = (
    {"diskSpaceCleanForciblyRatio": "1", "cleanFileForciblyEnable": "false"},
    {"diskMaxUsedSpaceRatio": "10"},
)
_DELETES: Final[Mapping[str, str]] = {"diskSpaceCleanForciblyRatio": "1"}


class RoomEffects:
    """Changes the settings of one broker group, and queries what they do."""

    def __init__(
        self,
        requests: OperatorRequests,
        record: SettingsRecord,
        expectations: Expectations,
        *,
        places: Sequence[BrokerPlace],
        queue: MessageQueue,
        segment_bytes: int,
    ) -> None:
        """`queue`: one whose topic nobody uses; `segment_bytes`: the size of the log's files."""
        self._requests = requests
        self._settings = BrokerSettings(requests, record, places, broker_group=queue.broker_name)
        self._expectations = expectations
        self._places = places
        self._queue = queue
        self._segment_bytes = segment_bytes

    async def show_room(self) -> None:
        """Have a broker take its disk for full, and for roomy again."""
        began_ns = time.monotonic_ns()
        # A send that would be stored if the disk were not full is too large for it, too.
        if not await self._settings.set({"maxMessageSize": "1"}):
            return
        for level, expected in (("1", _FULL), (_USUAL["diskSpaceWarningLevelRatio"], _TOO_LARGE)):
            if await self._settings.set({"diskSpaceWarningLevelRatio": level}):
                answered = await self._send_until(expected)
                if answered is not None:
                    what = f"send where diskSpaceWarningLevelRatio is {level}"
                    self._hold(what, str(expected), str(answered), began_ns)
        await self._settings.set(_USUAL)

    async def show_retention(self) -> None:
        """Have a broker delete what it has, as it does where the disk is too full.

        What is deleted for its age is an hour old at least, and no run is.
        """
        began_ns = time.monotonic_ns()
        if not await self._settings.set(_RETAINING):
            return
        await asyncio.sleep(WITHIN_S)
        still = await self._hold_retained("where settings keep it", began_ns)
        for settings in _STILL_RETAINED:
            if await self._settings.set(settings):
                text = " ".join(f"{name}={value}" for name, value in settings.items())
                await self._hold_retained(f"where {text}", began_ns)
            if not await self._settings.set(_RETAINING):
                return
        if still is not None and still[1] - still[0] > SEGMENTS_MIN * self._segment_bytes:
            await self._delete(still, began_ns)
        await self._settings.set(_RETAINING)

    async def _hold_retained(self, where: str, began_ns: int) -> tuple[int, int] | None:
        """Hold that the log begins for a while where it does now; return its last answer."""
        before = await self._log_begins()
        await asyncio.sleep(WITHIN_S)
        still = await self._log_begins()
        if before is None or still is None:
            return None
        self._hold(f"begin of the log {where}", str(before[0]), str(still[0]), began_ns)
        return still

    async def _delete(self, before: tuple[int, int], began_ns: int) -> None:
        """Change settings so that something is deleted, and wait for it."""
        if not await self._settings.set(_DELETES):
            return
        end_s = asyncio.get_running_loop().time() + RETAINED_S
        now = before
        while asyncio.get_running_loop().time() < end_s and now[0] <= before[0]:
            await asyncio.sleep(POLL_S)
            now = await self._log_begins() or now
        text = " ".join(f"{name}={value}" for name, value in _DELETES.items())
        moved = "later" if now[0] > before[0] else f"at {now[0]} as before, ends at {now[1]}"
        self._hold(f"begin of the log where {text}", "later", moved, began_ns)

    # Requests ------------------------------------------------------------------------------------

    async def _send_until(self, expected: int) -> int | None:
        """Send until it is refused with a code, for a while; return the last code."""
        queue = self._queue
        fields = {
            "a": "operator-producers",
            "b": queue.topic,
            "c": queue.topic,
            "d": "4",
            "e": str(queue.queue_id),
            "f": "0",
            "g": "0",
            "h": "0",
            "i": "",
            "j": "0",
            "k": "false",
            "n": queue.broker_name,
        }
        command = RemotingCommand(
            code=RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"more than one byte"
        )
        code = None
        end_s = asyncio.get_running_loop().time() + WITHIN_S
        while asyncio.get_running_loop().time() < end_s and code != expected:
            await asyncio.sleep(POLL_S)
            for place in self._places:  # leadership goes to whoever has room, for a moment
                code = await self._answer(place.address, command) or code
        return code

    async def _answer(self, address: str, command: RemotingCommand) -> int | None:
        """Return the answer's code; None where there is none that says something of room."""
        try:
            answer = await self._requests.any_at(address, command)
        except ClientError:
            return None
        is_other = answer.code == _FULL and "not the leader" in (answer.remark or "")
        return None if is_other else answer.code

    async def _log_begins(self) -> tuple[int, int] | None:
        """Return where the leader's log begins and ends; None where it does not say so."""
        command = RemotingCommand(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            answer, address = await request_leader(
                self._requests.instance,
                self._queue.broker_name,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
            )
            table = json_of(answer, address).get("table", {})
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (ClientError, KeyError, ValueError):
            return None  # without figures nothing is compared

    def _hold(self, what: str, expected: str, answered: str, began_ns: int) -> None:
        self._expectations.hold(
            what, expected=expected, answered=answered, queue=self._queue, calm_since=began_ns
        )
