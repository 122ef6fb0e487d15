"""Members of groups, their settings and locks: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from functools import partial
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


# Answered by the ready leader, to whom a follower forwards it.
_by_leader = partial(Row, leader=True, forwarded=Forwarded.FOR_OTHERS)

ROWS: Final[tuple[Row, ...]] = (
    _by_leader(
        _C.LOCK_BATCH_MQ,
        "locks.lock",
        body="LockBatchRequestBody; lockOKMQSet",
        needs=LOCKS,
    ),
    _by_leader(
        _C.UNLOCK_BATCH_MQ,
        "locks.unlock",
        body="UnlockBatchRequestBody",
        needs=LOCKS,
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
    _by_leader(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        "groups.update",
        body="SubscriptionGroupConfig",
        needs=ADMINISTRATOR,
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
    _by_leader(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        "groups.update_list",
        body="groupConfigList",
        needs=ADMINISTRATOR,
    ),
    _by_leader(
        _C.DELETE_SUBSCRIPTIONGROUP,
        "groups.delete",
        header=DeleteSubscriptionGroupRequestHeader,
        needs=ADMINISTRATOR,
    ),
    _by_leader(
        _C.DELETE_SUBSCRIPTION_GROUP_LIST,
        "groups.delete_list",
        body="groupNameList, cleanOffset",
        needs=ADMINISTRATOR,
    ),
)
