"""Members of groups, their settings and locks: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR, LOCKS, SIGNATURE, SUBSCRIPTIONS, consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UnregisterClientRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.LOCK_BATCH_MQ,
        "locks.lock",
        leader=True,
        body="LockBatchRequestBody; lockOKMQSet",
        needs=LOCKS,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.UNLOCK_BATCH_MQ,
        "locks.unlock",
        leader=True,
        body="UnlockBatchRequestBody",
        needs=LOCKS,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.HEART_BEAT,
        "clients.heartbeat",
        answer="IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE",
        body="HeartbeatData",
        needs=SUBSCRIPTIONS,
    ),
    Row(
        _C.UNREGISTER_CLIENT,
        "clients.unregister",
        header=UnregisterClientRequestHeader,
        needs=consume(group="consumerGroup"),
    ),
    Row(
        _C.CHECK_CLIENT_CONFIG,
        "clients.check_config",
        body="CheckClientRequestBody",
        needs=SIGNATURE,
        by_clients=True,
    ),
    Row(
        _C.GET_CONSUMER_LIST_BY_GROUP,
        "clients.consumer_list",
        header=GetConsumerListByGroupRequestHeader,
        body="answer: consumerIdList",
        needs=consume(group="consumerGroup"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        "groups.update",
        leader=True,
        body="SubscriptionGroupConfig",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        "groups.all_groups",
        body="answer: subscriptionGroupTable, dataVersion",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_SUBSCRIPTIONGROUP_CONFIG,
        "groups.group_config",
        header=GetSubscriptionGroupConfigRequestHeader,
        body="answer: SubscriptionGroupConfig",
        needs=SIGNATURE,
    ),
    Row(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        "groups.update_list",
        leader=True,
        body="groupConfigList",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.DELETE_SUBSCRIPTIONGROUP,
        "groups.delete",
        header=DeleteSubscriptionGroupRequestHeader,
        leader=True,
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
)
