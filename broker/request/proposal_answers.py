"""Mapping of a proposal's status in the log to RocketMQ's answer.

| proposal | answer of a send | of all else | meaning for the caller |
|---|---|---|---|
| COMMITTED | 0 | 0 | ok: fsynced on a majority and applied |
| FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT | 10, 12, with the place | 1 | unknown |
| SLAVE_NOT_AVAILABLE | 11, with the place | 1 | unknown |
| TRUNCATED | 14 | 14 | fail: surely not stored |
| not proposed | 14 `not the leader; leader is ...` | 14 | fail: surely not stored |
| LOST_LEADERSHIP, STOPPED | 1 `outcome unknown: ...` | 1 | unknown |

Invariants: only COMMITTED is answered with success; a timeout or a lost leadership is never called
a failure (promise G7). Java clients retry both 1 and 14, which is safe since the retry carries the
same UNIQ_KEY.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.request.request import RefusedError
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode

__all__ = ["refused_of", "store_code_of"]

_STORED: Final = {
    ProposalStatus.COMMITTED: ResponseCode.SUCCESS,
    ProposalStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    ProposalStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ProposalStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


def store_code_of(status: ProposalStatus | None) -> ResponseCode | None:
    """Return the code of a send's answer that names the message's place; None if it has none."""
    return None if status is None else _STORED.get(status)


def refused_of(
    status: ProposalStatus | None, not_leader: Callable[[], RefusedError]
) -> RefusedError | None:
    """Return the refusal of anything not certainly done; None if it is committed.

    `status` None: the node could not propose.
    """
    if status is ProposalStatus.COMMITTED:
        return None
    if status is None:
        return not_leader()
    if status is ProposalStatus.TRUNCATED:
        return RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE, "not stored: the log did not keep the entry"
        )
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"outcome unknown: {status.value.replace('_', ' ')} before the entry was committed",
    )
