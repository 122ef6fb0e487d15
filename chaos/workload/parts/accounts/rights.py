"""Requests by which a user of the part `accounts` tries what it may: several for each right, of
which each has another way to say what it is about. Pure.

Place in the data path: `accounts` draws one for each right behind a change; what is to be answered
is in the model (`chaos.workload.parts.accounts.model`).

Invariants: none stores a message, and none changes what another part sees; a request that is
allowed may find nothing, or be refused for what it asks.

Source: RocketMQ PlainAccessResource.parse, DefaultAuthorizationContextBuilder: of a group and a
topic whoever pulls, peeks or has offsets; of a topic whoever looks for a message, of a group who
locks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.accounts.file import pull_command
from chaos.workload.parts.accounts.model import READERS, TOPIC, TRACES, Right
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["requests_of"]

_FOREVER_MS: Final = (1 << 62) - 1
_C: Final = RequestCode


def requests_of(right: Right, position: int | None) -> Sequence[RemotingCommand]:
    """Return the requests that need a right. `position`: of a message of the topic in the log."""
    queue: dict[str, object] = {"topic": TOPIC, "queueId": 0}
    match right:
        case Right.SIGN:
            return (
                _command(_C.GET_MAX_OFFSET, **queue),
                _command(_C.GET_MIN_OFFSET, **queue),
                _command(_C.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=0),
                _command(_C.GET_EARLIEST_MSG_STORETIME, **queue),
            )
        case Right.VIEW:
            by_key = _by_key(TOPIC)
            if position is None:
                return (by_key,)
            # Clients of 4.x name no topic: the broker finds out which one the message is of.
            return (
                by_key,
                _command(_C.VIEW_MESSAGE_BY_ID, offset=position),
                _command(_C.VIEW_MESSAGE_BY_ID, offset=position, topic=TOPIC),
            )
        case Right.PULL:
            return _as_consumer(TOPIC)
        case Right.VIEW_TRACES:
            return (_by_key(TRACES),)
        case Right.PULL_TRACES:
            return _as_consumer(TRACES)
        case Right.JOIN:
            lock = {
                "consumerGroup": READERS,
                "clientId": "nobody",
                "mqSet": [{"topic": TOPIC, "brokerName": "", "queueId": 4_711}],
            }
            body = json.dumps(lock).encode()
            return (
                RemotingCommand(code=_C.LOCK_BATCH_MQ, body=body),
                RemotingCommand(code=_C.UNLOCK_BATCH_MQ, body=body),
            )
        case Right.ADMINISTRATE:
            return (_command(_C.CLEAN_UNUSED_TOPIC),)


def _by_key(topic: str) -> RemotingCommand:
    return _command(
        _C.QUERY_MESSAGE,
        topic=topic,
        key="no-such-key",
        maxNum=1,
        beginTimestamp=0,
        endTimestamp=_FOREVER_MS,
    )


def _as_consumer(topic: str) -> Sequence[RemotingCommand]:
    """Return what a member of the group does with a queue of a topic."""
    queue: dict[str, object] = {"topic": topic, "queueId": 0, "consumerGroup": READERS}
    pull = pull_command(topic, READERS)
    return (
        pull,
        RemotingCommand(code=_C.LITE_PULL_MESSAGE, ext_fields=pull.ext_fields),
        _command(_C.PEEK_MESSAGE, **queue, maxMsgNums=1),
        _command(_C.NOTIFICATION, **queue, pollTime=0, bornTime=0),
        _command(_C.QUERY_CONSUMER_OFFSET, **queue),
        # No offset is below zero: who may commit is told so.
        _command(_C.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=-7),
    )


def _command(code: RequestCode, **fields: object) -> RemotingCommand:
    return RemotingCommand(
        code=code, ext_fields={name: str(value) for name, value in fields.items()}
    )
