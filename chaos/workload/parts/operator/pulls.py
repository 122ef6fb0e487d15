"""How much a pull brings, in the part `operator`: settings of brokers that bound it.

Place in the data path: UPDATE_BROKER_CONFIG at each replica of a broker group, and behind it pulls
from the beginning of a queue that has messages, at the leader.

Invariants: it runs when all others have ended, so that the queue stays as it is; what is expected
follows from the queue's ends, which are queried anew, and from the bounds.

Source: RocketMQ MessageStoreConfig, DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.cluster.layout import BrokerPlace
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.operator.broker_settings import BrokerSettings
from chaos.workload.parts.operator.requests import OperatorRequests
from client.errors import ClientError
from client.message import MessageQueue
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records

__all__ = ["PullBounds"]

TIMEOUT_MS: Final = 3_000
WANTED: Final = 24  # messages of a pull
_COUNT: Final = "maxTransferCountOnMessageInMemory"
_BYTES: Final = "maxTransferBytesOnMessageInMemory"
_USUAL: Final = {_COUNT: "1024", _BYTES: str(8 << 20)}
# Settings, and how many messages they let a pull bring at most: one comes whatever its size.
_BOUNDS: Final[Sequence[tuple[Mapping[str, str], int]]] = (
    ({_COUNT: "2"}, 2),
    ({_COUNT: "5"}, 5),
    ({_COUNT: "1024", _BYTES: "1"}, 1),
    (_USUAL, WANTED),
)
_WITH_SUBSCRIPTION: Final = "4"  # of a pull's sysFlag


class PullBounds:
    """Changes the bounds of one broker group, and pulls."""

    def __init__(
        self,
        requests: OperatorRequests,
        record: SettingsRecord,
        expectations: Expectations,
        *,
        places: Sequence[BrokerPlace],
        queue: MessageQueue,
    ) -> None:
        self._requests = requests
        self._settings = BrokerSettings(requests, record, places, broker_group=queue.broker_name)
        self._expectations = expectations
        self._queue = queue

    async def show(self) -> None:
        """Set each, pull, and leave what is usual."""
        began_ns = time.monotonic_ns()
        for values, most in _BOUNDS:
            if not await self._settings.set(values):
                continue
            begin = await self._offset(RequestCode.GET_MIN_OFFSET)
            end = await self._offset(RequestCode.GET_MAX_OFFSET)
            count = None if begin is None else await self._pull(begin)
            if begin is None or end is None or count is None or end <= begin:
                continue
            self._expectations.hold(
                f"messages of a pull from {begin}, which wants {WANTED}, where {dict(values)}",
                expected=min(most, end - begin),
                answered=count,
                queue=self._queue,
                calm_since=began_ns,
            )

    async def _offset(self, code: RequestCode) -> int | None:
        answer = await self._request(code, {})
        text = "" if answer is None else answer.ext_fields.get("offset", "")
        return int(text) if text.isdecimal() else None

    async def _pull(self, offset: int) -> int | None:
        """Return how many messages a pull brings; None without an answer."""
        answer = await self._request(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": "operator-readers",
                "queueOffset": str(offset),
                "maxMsgNums": str(WANTED),
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subVersion": "0",
                "subscription": "*",
                "expressionType": "TAG",
            },
        )
        try:
            return None if answer is None else len(list(decode_records(answer.body)))
        except RecordError:
            return -1  # what came can't be read

    async def _request(
        self, code: RequestCode, fields: Mapping[str, str]
    ) -> RemotingCommand | None:
        queue = self._queue
        place = {
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }
        try:
            answer, _ = await request_leader(
                self._requests.instance,
                queue.broker_name,
                lambda: RemotingCommand(code=code, ext_fields={**place, **fields}),
                timeout_ms=TIMEOUT_MS,
            )
        except ClientError:
            return None  # without an answer nothing is compared
        return answer
