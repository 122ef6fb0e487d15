"""What the answer to a pop says of its records: the handle of each; pure.

Place in the data path: `client.consume.pop_consumer` pairs the records of an answer with their
handles. The fields' formats: `remoting.protocol.pop_handle`.

Source: RocketMQ MQClientAPIImpl.processPopResponse.
"""

from __future__ import annotations

from collections.abc import Mapping

from remoting.protocol.pop_handle import PopHandle, PopHandleError, retry_flag

__all__ = ["PopAnswer"]


class PopAnswer:
    """The fields of a pop's answer. Raises PopHandleError where they can't be parsed."""

    def __init__(self, fields: Mapping[str, str], broker_name: str) -> None:
        self._broker_name = broker_name
        try:
            self._pop_ms = int(fields["popTime"])
            self._invisible_ms = int(fields["invisibleTime"])
            self._revive_queue = int(fields["reviveQid"])
            self._starts = {
                key: int(value) for key, value in _triples(fields.get("startOffsetInfo", ""))
            }
            self._offsets = {
                key: frozenset(map(int, value.split(",")))
                for key, value in _triples(fields.get("msgOffsetInfo", ""))
            }
        except (KeyError, ValueError) as error:
            raise PopHandleError(f"answer to a pop lacks or garbles {error}") from error

    def handle(self, record_topic: str, queue_id: int, offset: int) -> PopHandle:
        """Return the handle of a record that carries none itself."""
        flag = retry_flag(record_topic)
        key = (flag, queue_id)
        if offset not in self._offsets.get(key, frozenset()):
            raise PopHandleError(f"offset {offset} of queue {queue_id} is not among those popped")
        return PopHandle(
            start_offset=self._starts.get(key, offset),
            pop_ms=self._pop_ms,
            invisible_ms=self._invisible_ms,
            revive_queue=self._revive_queue,
            retry_flag=flag,
            broker_name=self._broker_name,
            queue_id=queue_id,
            offset=offset,
        )


def _triples(text: str) -> list[tuple[tuple[str, int], str]]:
    """Parse each triple into ((retry flag, queue id), value). Raises ValueError."""
    found = []
    for part in text.split(";"):
        if part:
            flag, queue_id, value = part.split(" ")
            found.append(((flag, int(queue_id)), value))
    return found
