"""Requests of brokers and operators, which find a connection where clients have all of theirs.

Place in the data path: `namesrv.server` reserves connections for whoever sends one of them.
"""

from __future__ import annotations

from typing import Final

from remoting.protocol.codes import RequestCode

__all__ = ["NOT_OF_CLIENTS"]

NOT_OF_CLIENTS: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }
)
