"""The classification table: which client error stands for which broker response code.

Place in the data path: every broker answer other than success goes through `error_of`;
`client.connection.retry` then decides by the error's `retriable` and `definite`.

Definite refusals (nothing stored): 2, 3, 13, 14, 16, 17, 22 to 26, 29, 208, 215, and 604 where its
remark says which decision on the transaction won, or that a recall failed. A 13 whose remark begins
with `outcome unknown` is not a refusal: the message may have been stored long ago. Code 1 is
unknown: RocketMQ sends it also where the local append succeeded and replication did not. Any code
without an entry is unknown too, since "unknown" is the safe classification in doubt.

Source: RocketMQ's response codes. The remark of a code 14: `remoting.protocol.leader_hint`.
"""

from __future__ import annotations

import re
from typing import Final

from client.errors import (
    BrokerBusyError,
    BrokerRefusedError,
    BrokerSystemError,
    BrokerUnreachableError,
    ClientError,
    ContraryDecisionError,
    GroupNotExistError,
    IllegalMessageError,
    InvalidParameterError,
    MaybeStoredError,
    NoMessageError,
    NoPermissionError,
    NotLeaderError,
    NotRecalledError,
    OffsetNotFoundError,
    RequestNotSupportedError,
    SubscriptionNotReadyError,
    TopicNotExistError,
    UnansweredError,
    UnencodableRequestError,
)
from remoting.errors import RemotingError, UnencodableError
from remoting.protocol.leader_hint import leader_of

__all__ = ["error_of", "error_of_remoting"]

_DECIDED: Final = re.compile(r"transaction already (committed|rolled back|discarded)\b")
"""Matches a code 604 that names the decision that won. "Ended, long ago" does not name it."""

_NOT_RECALLED: Final = re.compile(r"recall (failed|handle)\b")
"""Matches the remark of a code 604 that refuses a recall."""

_ACL_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException"
"""Start of the remark with which RocketMQ up to 5.2 refuses an account, under code 1, before it
processes the request any further."""

_OUTCOME_UNKNOWN: Final = "outcome unknown"
"""Start of the remark of a code 13 for a message that is stored already, or may be."""

_SYSTEM_ERROR: Final = 1
_SLAVE_NOT_AVAILABLE: Final = 11
_MESSAGE_ILLEGAL: Final = 13
_NOT_LEADER: Final = 14
_ILLEGAL_OPERATION: Final = 604

_ERRORS: Final[dict[int, type[BrokerRefusedError]]] = {
    1: BrokerSystemError,
    2: BrokerBusyError,
    3: RequestNotSupportedError,
    13: IllegalMessageError,
    16: NoPermissionError,
    17: TopicNotExistError,
    22: OffsetNotFoundError,
    23: InvalidParameterError,
    24: SubscriptionNotReadyError,
    25: SubscriptionNotReadyError,
    26: GroupNotExistError,
    29: InvalidParameterError,
    208: NoMessageError,
    215: BrokerBusyError,
}


def error_of(code: int, remark: str | None, address: str) -> BrokerRefusedError:
    """Return the error that stands for a response `code` other than success."""
    assert code != 0, "a success is no error"
    # RocketMQ's slaves refuse decisions by code 11, which after a send is a status of its success.
    if code in {_NOT_LEADER, _SLAVE_NOT_AVAILABLE}:
        return NotLeaderError(code, remark, address, leader_of(remark))
    if code == _ILLEGAL_OPERATION and _DECIDED.search(remark or ""):
        return ContraryDecisionError(code, remark, address)
    if code == _ILLEGAL_OPERATION and _NOT_RECALLED.match(remark or ""):
        return NotRecalledError(code, remark, address)
    if code == _SYSTEM_ERROR and (remark or "").startswith(_ACL_REFUSAL):
        return NoPermissionError(code, remark, address)
    if code == _MESSAGE_ILLEGAL and (remark or "").startswith(_OUTCOME_UNKNOWN):
        return MaybeStoredError(code, remark, address)
    return _ERRORS.get(code, BrokerRefusedError)(code, remark, address)


def error_of_remoting(error: RemotingError, address: str) -> ClientError:
    """Return the error that stands for a request to `address` without an answer."""
    if isinstance(error, UnencodableError):
        return UnencodableRequestError(str(error))  # whichever the address
    if error.definite:
        return BrokerUnreachableError(f"broker {address}: {error}")
    return UnansweredError(f"broker {address}: {error}")
