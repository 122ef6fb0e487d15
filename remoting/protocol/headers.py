"""Typed request and response headers: the fields in a command's extFields.

Place in the data path: handlers decode a request's fields with `from_ext_fields` before anything
else, and encode an answer's with `to_ext_fields`.

Fields are text on the wire: numbers in decimal, booleans "true" and "false", absent means None or
the default here. Unknown fields are ignored (5.x peers send `bname`, `ns`, `nsd`, `oway`, `lo`).
A field without a default is required. Wire names are the camel-case form of the attribute, except
where `name=` says otherwise; Java longs and ints are checked for their width.

The classes are msgspec Structs, which behave as frozen keyword-only dataclasses and are decoded in
one C call: a header is made per message. The module has more than 500 lines because it is one flat
list, a class per header, with nothing else in it.

Source: RocketMQ 5.3 `org.apache.rocketmq.remoting.protocol.header`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self, TypeAlias

import msgspec
from msgspec import field

from remoting.errors import HeaderError

__all__ = [
    "BrokerHeartbeatRequestHeader",
    "CheckTransactionStateRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicRequestHeader",
    "EndTransactionRequestHeader",
    "GetBrokerMemberGroupRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetRouteInfoRequestHeader",
    "Header",
    "KvConfigRequestHeader",
    "KvConfigResponseHeader",
    "KvKeyRequestHeader",
    "KvNamespaceRequestHeader",
    "NotifyConsumerIdsChangedRequestHeader",
    "OffsetRequestHeader",
    "OffsetResponseHeader",
    "PermOfBrokerRequestHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "RecallMessageRequestHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "SearchOffsetRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageResponseHeader",
    "TimestampResponseHeader",
    "TopicRequestHeader",
    "TopicsByClusterRequestHeader",
    "UnregisterBrokerRequestHeader",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
    "ViewMessageRequestHeader",
]

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Base of all headers."""

    @classmethod
    def from_ext_fields(cls, ext_fields: dict[str, str]) -> Self:
        """Decode a header. Raises HeaderError naming the first field that is missing or invalid."""
        try:
            return msgspec.convert(ext_fields, cls, strict=False)
        except msgspec.ValidationError as error:
            raise HeaderError(cls._describe(str(error), ext_fields)) from error

    def to_ext_fields(self) -> dict[str, str]:
        """Encode the fields; those that are None are left out."""
        ext_fields: dict[str, str] = {}
        for attribute, name in zip(
            self.__struct_fields__, self.__struct_encode_fields__, strict=True
        ):
            value = getattr(self, attribute)
            if value is None:
                continue
            if isinstance(value, bool):
                ext_fields[name] = "true" if value else "false"
            else:
                ext_fields[name] = str(value)
        return ext_fields

    @classmethod
    def _describe(cls, error: str, ext_fields: dict[str, str]) -> str:
        """Return msgspec's text; name the attribute where the wire name is a single letter."""
        attributes = dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))
        wire_name = error.rpartition("$.")[2].rstrip("`")
        if "missing required field" in error:
            wire_name = error.split("`")[1]
            problem = "is missing"
        else:
            problem = f"is {ext_fields.get(wire_name, '')!r:.100}: {error.partition(' - at ')[0]}"
        attribute = attributes.get(wire_name, wire_name)
        named = wire_name if len(wire_name) > 1 else f"{wire_name} ({attribute})"
        return f"{cls.__name__}: field {named} {problem}"


# Sending.


class SendMessageRequestHeader(Header, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2 (letters).

    SEND_MESSAGE and SEND_REPLY_MESSAGE carry the same with long names: `from_long_names`.
    `properties` is the block in text form.
    """

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp_ms: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: Int | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)

    _LONG_NAMES: ClassVar[dict[str, str]] = {
        "producerGroup": "a",
        "topic": "b",
        "defaultTopic": "c",
        "defaultTopicQueueNums": "d",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsumeTimes": "j",
        "unitMode": "k",
        "maxReconsumeTimes": "l",
        "batch": "m",
        "bname": "n",
    }

    @classmethod
    def from_long_names(cls, ext_fields: dict[str, str]) -> Self:
        """Decode SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324). Raises HeaderError."""
        letters = cls._LONG_NAMES
        return cls.from_ext_fields(
            {letters[name]: value for name, value in ext_fields.items() if name in letters}
        )

    def to_long_names(self) -> dict[str, str]:
        """Encode as SEND_MESSAGE and PUSH_REPLY_MESSAGE_TO_CLIENT do."""
        fields = self.to_ext_fields()
        return {name: fields[key] for name, key in self._LONG_NAMES.items() if key in fields}


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to all sends; `msg_id` is the offset message id, for a batch comma-joined."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    region_id: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)

    def to_ext_fields(self) -> dict[str, str]:
        # Without the generic loop, since one is made per send.
        ext_fields = {
            "msgId": self.msg_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "MSG_REGION": self.region_id,
            "TRACE_ON": "true" if self.trace_on else "false",
        }
        if self.transaction_id is not None:
            ext_fields["transactionId"] = self.transaction_id
        return ext_fields


class ConsumerSendMsgBackRequestHeader(Header, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK; `offset` is physical."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionRequestHeader(Header, frozen=True, kw_only=True):
    """END_TRANSACTION; `commit_or_rollback` is 8 (commit), 12 (rollback) or 0 (unknown)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None


class RecallMessageRequestHeader(Header, frozen=True, kw_only=True):
    """RECALL_MESSAGE; `recall_handle` is what the answer to the delayed send named."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class CheckTransactionStateRequestHeader(Header, frozen=True, kw_only=True):
    """CHECK_TRANSACTION_STATE, broker to producer; `msg_id` is the UNIQ_KEY."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


# Consuming.

PULL_COMMIT_OFFSET: Final = 1
PULL_SUSPEND: Final = 2
PULL_SUBSCRIPTION: Final = 4
PULL_CLASS_FILTER: Final = 8
PULL_LITE: Final = 16


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE; bits of `sys_flag` are the PULL_* constants here."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_ms: Long = field(name="suspendTimeoutMillis")
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a pull with code 0, 19, 20 or 21."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long

    def to_ext_fields(self) -> dict[str, str]:
        return {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }


class QueryConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class OffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET, GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int
    committed: bool = True


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` is LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp_ms: Long = field(name="timestamp")
    boundary_type: str = "LOWER"


class OffsetResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to the queries of consumer, maximum, minimum and searched offsets."""

    offset: Long


class TimestampResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to GET_EARLIEST_MSG_STORETIME, Unix ms."""

    timestamp_ms: Long = field(name="timestamp")


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE; times are Unix ms."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp_ms: Long = field(name="beginTimestamp")
    end_timestamp_ms: Long = field(name="endTimestamp")
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to QUERY_MESSAGE."""

    index_last_update_timestamp_ms: Long = field(name="indexLastUpdateTimestamp")
    index_last_update_physical_offset: Long = field(name="indexLastUpdatePhyoffset")


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID; `offset` is physical."""

    offset: Long
    topic: str | None = None


# Clients and groups.


class UnregisterClientRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED, broker to client."""

    consumer_group: str


# Administration of a broker.


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC; `attributes` is "+name=value,-name"."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER and DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool = False


class TopicRequestHeader(Header, frozen=True, kw_only=True):
    """Requests that name only a topic: GET_TOPIC_STATS_INFO, GET_TOPIC_CONFIG."""

    topic: str


# Name server.


class GetRouteInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC; the answer here is always standard JSON."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """REGISTER_BROKER; `body_crc32` 0 means that the body is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: Int = 0
    heartbeat_timeout_ms: Long | None = field(name="heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = None


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to REGISTER_BROKER: both are filled for followers whose leader is registered."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatRequestHeader(Header, frozen=True, kw_only=True):
    """BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str


class QueryDataVersionRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class TopicsByClusterRequestHeader(Header, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class PermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class KvConfigRequestHeader(Header, frozen=True, kw_only=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class KvKeyRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KV_CONFIG and DELETE_KV_CONFIG."""

    namespace: str
    key: str


class KvNamespaceRequestHeader(Header, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class KvConfigResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to GET_KV_CONFIG."""

    value: str | None = None
