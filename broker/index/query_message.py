"""QUERY_MESSAGE: stored messages of a topic by UNIQ_KEY or by a word of KEYS.

Place in the data path: waits until the index has caught up with what was committed when the
query came (ReadIndex, promise G6), looks up positions, and answers with the stored records.

Invariant: success, and "there is none", cover all that is committed. A replica that does not lead
can't know what was committed last, and an index that has not caught up lacks some of it: neither
returns a part as if it were the whole.

Rules: RocketMQ QueryMessageProcessor, DefaultMessageStore.queryMessage: at most 64 messages, the
newest, in the order of the log; `_UNIQUE_KEY_QUERY` makes it 32. Beyond RocketMQ: hashes that
collide are told apart by the records' own keys, and the time range is exact to the millisecond.
"""

from __future__ import annotations

from typing import Final

from broker.index.indexer import Indexer
from broker.index.message_keys import record_keys
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import QueryMessageRequestHeader
from remoting.records.message import decode_record

__all__ = ["QueryMessageProcessor"]

_COUNT_MAX: Final = 64
_UNIQUE_COUNT: Final = 32
_CANDIDATES_MAX: Final = 4 * _COUNT_MAX  # some may only share the hash
_KEY_SIZE_MAX: Final = 32_767
_CATCH_UP_S: Final = 3.0


class QueryMessageProcessor:
    """Handler of queries by key; `indexer` None: the index is disabled (message_index_enable)."""

    def __init__(
        self, replica: Replica, leadership: Leadership, tasks: TaskOwner, indexer: Indexer | None
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks
        self._indexer = indexer

    def handle(self, header: QueryMessageRequestHeader, request: Request) -> None:
        """Answer with the messages of the key, at the read point. Raises RefusedError."""
        if len(header.key) > _KEY_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"a key of {len(header.key)} characters is no key"
            )
        count = _UNIQUE_COUNT if header.unique_key_query else min(header.max_num, _COUNT_MAX)
        indexer = self._indexer
        if indexer is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "this broker has no index (message_index_enable)"
            )
        self._tasks.answer(request, lambda: self._answer(header, request, indexer, count))

    async def _answer(
        self, header: QueryMessageRequestHeader, request: Request, indexer: Indexer, count: int
    ) -> None:
        await self._leadership.wait_for_read_point()
        begin_ms, end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
        if not await indexer.caught_up(_CATCH_UP_S):
            request.reply(
                ResponseCode.SYSTEM_BUSY,
                f"the index is {indexer.behind} bytes behind the log, ask again",
                _fields(indexer),
            )
            return
        records: list[bytes] = []
        if count > 0 and begin_ms <= end_ms:
            positions = await indexer.look_up(
                header.topic,
                header.key,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=_CANDIDATES_MAX,
            )
            records = self._records(positions, header, count)
        if records:
            request.reply(ResponseCode.SUCCESS, None, _fields(indexer), b"".join(records))
        else:
            request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                _fields(indexer),
            )

    def _records(
        self, positions: list[int], header: QueryMessageRequestHeader, count: int
    ) -> list[bytes]:
        """Read the newest records that have the key, in the log's order; none of a deleted topic.

        Raises RefusedError where one is damaged here, or too many keys share the hash.
        """
        topic, key = header.topic, header.key
        begin_ms, end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
        size_left = self._replica.config.pull_size_max
        floors = self._replica.state.floors
        records: list[bytes] = []
        for position in positions:
            try:
                stored = self._replica.read_record(position)
                record = decode_record(stored, check_crc=False)
            except (LookupError, RecordError):  # retention took it, or the index is of another log
                continue
            if (
                record.topic == topic
                and record.queue_offset >= floors.get(topic, record.queue_id)  # not deleted
                and begin_ms <= record.store_timestamp_ms <= end_ms
                and key in record_keys(record.properties)
            ):
                size_left -= len(stored)
                if records and size_left < 0:
                    break
                records.append(stored)
                if len(records) == count:
                    break
        else:
            if len(positions) >= _CANDIDATES_MAX:  # older ones were not read
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{len(positions)} messages or more share the hash of this key, and "
                    f"{len(records)} of them have it: ask for a shorter time",
                )
        records.reverse()
        return records


def _fields(indexer: Indexer) -> dict[str, str]:
    last_ms, last_position = indexer.index.last_update
    return {
        "indexLastUpdateTimestamp": str(last_ms),
        "indexLastUpdatePhyoffset": str(last_position),
    }
