"""Requests of RocketMQ that this broker doesn't serve: who serves them, or why nobody does.

Place in the data path: none; completes `broker.process.request_table` so that every code of
RocketMQ has its place. A broker answers all of these with code 3.
"""

from __future__ import annotations

from typing import Final

from remoting.protocol.codes import RequestCode

__all__ = ["NAME_SERVER", "NOT_SERVED", "TO_CLIENTS"]

_C = RequestCode

TO_CLIENTS: Final = frozenset(
    {
        _C.CHECK_TRANSACTION_STATE,
        _C.NOTIFY_CONSUMER_IDS_CHANGED,
        _C.RESET_CONSUMER_CLIENT_OFFSET,
        _C.GET_CONSUMER_STATUS_FROM_CLIENT,
        _C.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }
)
"""Requests that a broker sends to clients."""

NAME_SERVER: Final = frozenset(
    {
        *(_C.PUT_KV_CONFIG, _C.GET_KV_CONFIG, _C.DELETE_KV_CONFIG, _C.GET_KVLIST_BY_NAMESPACE),
        *(_C.REGISTER_BROKER, _C.UNREGISTER_BROKER, _C.BROKER_HEARTBEAT, _C.QUERY_DATA_VERSION),
        *(_C.GET_ROUTEINFO_BY_TOPIC, _C.GET_BROKER_CLUSTER_INFO, _C.GET_BROKER_MEMBER_GROUP),
        *(_C.WIPE_WRITE_PERM_OF_BROKER, _C.ADD_WRITE_PERM_OF_BROKER),
        *(_C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _C.GET_TOPICS_BY_CLUSTER),
        *(_C.DELETE_TOPIC_IN_NAMESRV, _C.REGISTER_TOPIC_IN_NAMESRV),
        *(_C.GET_SYSTEM_TOPIC_LIST_FROM_NS, _C.GET_UNIT_TOPIC_LIST),
        *(_C.GET_HAS_UNIT_SUB_TOPIC_LIST, _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        *(_C.UPDATE_NAMESRV_CONFIG, _C.GET_NAMESRV_CONFIG),
    }
)
"""Requests that go to a name server."""

_NO_SENDER: Final = "RocketMQ has the number only: no client sends it, no broker serves it"
_RAFT: Final = "replicas agree through Raft: no master and slave, no Controller"
_COLD: Final = "who reads old messages is not held back: nothing counts what was cold"
_STORE: Final = "there is no RocksDB store"
_FILE: Final = "accounts of 4.x stand in a file of each node, which no request changes"
_SLAVES: Final = "what slaves copy from their master: replicas have it from the log"

NOT_SERVED: Final[dict[RequestCode, str]] = {
    **dict.fromkeys(
        (
            *(_C.POP_LITE_MESSAGE, _C.LITE_SUBSCRIPTION_CTL, _C.ACK_LITE_MESSAGE),
            *(_C.NOTIFY_UNSUBSCRIBE_LITE, _C.GET_BROKER_LITE_INFO, _C.GET_PARENT_TOPIC_INFO),
            *(_C.GET_LITE_TOPIC_INFO, _C.GET_LITE_CLIENT_INFO, _C.GET_LITE_GROUP_INFO),
            _C.TRIGGER_LITE_DISPATCH,
        ),
        "there are no lite topics",
    ),
    _C.SWITCH_TIMER_ENGINE: "timers are kept in one way",
    **dict.fromkeys(
        (
            *(_C.QUERY_BROKER_OFFSET, _C.GET_TOPIC_CONFIG_LIST, _C.GET_TOPIC_NAME_LIST),
            *(_C.TRIGGER_DELETE_FILES, _C.GET_CLIENT_CONFIG, _C.SUSPEND_CONSUMER),
            *(_C.RESUME_CONSUMER, _C.RESET_CONSUMER_OFFSET_IN_CONSUMER),
            *(_C.RESET_CONSUMER_OFFSET_IN_BROKER, _C.ADJUST_CONSUMER_THREAD_POOL),
            *(_C.WHO_CONSUME_THE_MESSAGE, _C.REGISTER_FILTER_SERVER),
            _C.REGISTER_MESSAGE_FILTER_CLASS,
        ),
        _NO_SENDER,
    ),
    **dict.fromkeys(
        (
            *(_C.ADD_BROKER, _C.REMOVE_BROKER, _C.NOTIFY_MIN_BROKER_ID_CHANGE),
            _C.EXCHANGE_BROKER_HA_INFO,
            *(_C.CONTROLLER_ALTER_SYNC_STATE_SET, _C.CONTROLLER_ELECT_MASTER),
            *(_C.CONTROLLER_REGISTER_BROKER, _C.CONTROLLER_GET_REPLICA_INFO),
            *(_C.CONTROLLER_GET_METADATA_INFO, _C.CONTROLLER_GET_SYNC_STATE_DATA),
            *(_C.GET_BROKER_EPOCH_CACHE, _C.NOTIFY_BROKER_ROLE_CHANGED),
            *(_C.UPDATE_CONTROLLER_CONFIG, _C.GET_CONTROLLER_CONFIG, _C.CLEAN_BROKER_DATA),
            *(_C.CONTROLLER_GET_NEXT_BROKER_ID, _C.CONTROLLER_APPLY_BROKER_ID),
            *(_C.BROKER_CLOSE_CHANNEL_REQUEST, _C.CHECK_NOT_ACTIVE_BROKER_REQUEST),
            *(_C.GET_BROKER_LIVE_INFO_REQUEST, _C.GET_SYNC_STATE_DATA_REQUEST),
            _C.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        ),
        _RAFT,
    ),
    **dict.fromkeys(
        (
            _C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        ),
        _COLD,
    ),
    _C.SET_COMMITLOG_READ_MODE: "the log is read by position, not mapped",
    **dict.fromkeys(
        (
            *(_C.UPDATE_AND_CREATE_ACL_CONFIG, _C.DELETE_ACL_CONFIG),
            *(_C.GET_BROKER_CLUSTER_ACL_INFO, _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
        ),
        _FILE,
    ),
    **dict.fromkeys(
        (_C.GET_TIMER_CHECK_POINT, _C.GET_TIMER_METRICS, _C.GET_ALL_MESSAGE_REQUEST_MODE), _SLAVES
    ),
    _C.UPDATE_AND_GET_GROUP_FORBIDDEN: "a permission to read is a user's (AUTH_CREATE_ACL)",
    _C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _STORE,
    _C.EXPORT_ROCKSDB_CONFIG_TO_JSON: _STORE,
    _C.UPDATE_AND_CREATE_STATIC_TOPIC: "there are no static (logical) topics",
    _C.QUERY_CORRECTION_OFFSET: "left from a filter server that 4.x dropped",
}
