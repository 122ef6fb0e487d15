"""What an answer to a drill shows, as its row in the history has it. Pure.

Place in the data path: each drill holds what is shown here against what it expects.

Invariant: a body that can't be read shows no records; it never ends a drill.
"""

from __future__ import annotations

from chaos.workload.messages import PROPERTY_VALUE
from remoting.errors import RecordError
from remoting.protocol.command import RemotingCommand
from remoting.records.message import MessageRecord, decode_records

__all__ = ["code_of", "places_of", "records_of", "values_of"]


def code_of(answer: RemotingCommand) -> str:
    """Return the code of an answer as text."""
    return str(answer.code)


def records_of(answer: RemotingCommand) -> list[MessageRecord]:
    """Return the records of an answer's body; none where it can't be read, which is shown."""
    try:
        return list(decode_records(answer.body))
    except RecordError:
        return []


def values_of(answer: RemotingCommand) -> str:
    """Return the offsets and values of an answer's records, as `shown_of` writes what is
    expected."""
    return ",".join(places_of(answer))


def places_of(answer: RemotingCommand) -> list[str]:
    """Return "offset:value" of each record of an answer."""
    return [
        f"{record.queue_offset}:{record.property_map().get(PROPERTY_VALUE, '?')}"
        for record in records_of(answer)
    ]
