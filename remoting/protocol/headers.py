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

from typing import Annotated, Final, Self, TypeAlias

import msgspec
from msgspec import field

from remoting.errors import HeaderError

__all__ = [
    "AckMessageRequestHeader",
    "AclRequestHeader",
    "BrokerHeartbeatRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeMemberRequestHeader",
    "CheckTransactionStateRequestHeader",
    "CloneGroupOffsetRequestHeader",
    "ConsumeMessageDirectlyResultRequestHeader",
    "ConsumerSendMsgBackRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteAclRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicRequestHeader",
    "EndTransactionRequestHeader",
    "GetBrokerMemberGroupRequestHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetConsumerStatusRequestHeader",
    "GetMaxOffsetRequestHeader",
    "GetMinOffsetRequestHeader",
    "GetProducerConnectionListRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetSubscriptionGroupConfigRequestHeader",
    "HalfRequestHeader",
    "Header",
    "KvConfigRequestHeader",
    "KvConfigResponseHeader",
    "KvKeyRequestHeader",
    "KvNamespaceRequestHeader",
    "ListAclsRequestHeader",
    "ListHalvesRequestHeader",
    "ListUsersRequestHeader",
    "NotificationRequestHeader",
    "OffsetResponseHeader",
    "PeekMessageRequestHeader",
    "PermOfBrokerRequestHeader",
    "PollingInfoRequestHeader",
    "PopMessageRequestHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryDataVersionRequestHeader",
    "QueryDataVersionResponseHeader",
    "QueryMessageRequestHeader",
    "QuerySubscriptionByConsumerRequestHeader",
    "QueryTopicsByConsumerRequestHeader",
    "RecallMessageRequestHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "ResetMasterFlushOffsetHeader",
    "ResetOffsetRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "SearchOffsetRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageResponseHeader",
    "StatusRequestHeader",
    "TopicRequestHeader",
    "TopicsByClusterRequestHeader",
    "TransferLeadershipRequestHeader",
    "UnregisterBrokerRequestHeader",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
    "UserRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
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

    SEND_MESSAGE and SEND_REPLY_MESSAGE carry the same with long names, which only brokers read.
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


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to all sends; `msg_id` is the offset message id, for a batch comma-joined."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    region_id: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: bool = field(name="TRACE_ON", default=True)


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
    msg_id: str | None = None
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


class PullMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE; bits of `sys_flag` are the PULL_* constants here.

    RocketMQ requires the commit offset, the suspend timeout and the subscription's version even
    where `sys_flag` leaves them unused; the pulls of its proxy (5.3, ConsumerProcessor) have no
    version. Here nothing is committed, held or compared without them.
    """

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long = -1
    suspend_timeout_ms: Long = field(name="suspendTimeoutMillis", default=0)
    sub_version: Long = 0
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


class GetMaxOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MAX_OFFSET."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMinOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int


class SearchOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` is LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp_ms: Long = field(name="timestamp")
    boundary_type: str = "LOWER"


class OffsetResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to the queries of consumer, maximum, minimum and searched offsets."""

    offset: Long


class QueryMessageRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_MESSAGE; times are Unix ms."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp_ms: Long = field(name="beginTimestamp")
    end_timestamp_ms: Long = field(name="endTimestamp")
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID; `offset` is physical."""

    offset: Long
    topic: str | None = None


# Popping.


class PopMessageRequestHeader(Header, frozen=True, kw_only=True):
    """POP_MESSAGE; `queue_id` below 0 is any queue, `init_mode` other than 0 is the queue's end.

    RocketMQ's broker fills in a `born_ms` that is left out, as lua-resty-rocketmq does.
    """

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_ms: Long = field(name="invisibleTime")
    poll_ms: Long = field(name="pollTime")
    init_mode: Int
    born_ms: Long | None = field(name="bornTime", default=None)
    expression_type: str | None = field(name="expType", default=None)
    expression: str | None = field(name="exp", default=None)
    order: bool = False
    attempt_id: str | None = None


class AckMessageRequestHeader(Header, frozen=True, kw_only=True):
    """ACK_MESSAGE; `extra_info` is the handle that the pop named."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long


class ChangeInvisibleTimeRequestHeader(Header, frozen=True, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME; `extra_info` is the handle that the pop named."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_ms: Long = field(name="invisibleTime")


class PeekMessageRequestHeader(Header, frozen=True, kw_only=True):
    """PEEK_MESSAGE; `queue_id` below 0 is all queues."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int


class NotificationRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFICATION: whether a pop would find a message; `queue_id` below 0 is all queues."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_ms: Long = field(name="pollTime")
    born_ms: Long | None = field(name="bornTime", default=None)
    order: bool = False
    attempt_id: str | None = None


class PollingInfoRequestHeader(Header, frozen=True, kw_only=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int


# Clients and groups.


class UnregisterClientRequestHeader(Header, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class GetSubscriptionGroupConfigRequestHeader(Header, frozen=True, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


# Administration of a broker.


class CreateTopicRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC; `attributes` is "+name=value,-name".

    RocketMQ requires `default_topic` and `topic_filter_type`; nothing here depends on the first.
    """

    topic: str
    default_topic: str | None = None
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str | None = None
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
    """Requests that name only a topic: GET_TOPIC_STATS_INFO, GET_TOPIC_CONFIG and
    QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class GetConsumerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class QueryTopicsByConsumerRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str


class ResetOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET from broker to client.

    A negative `timestamp_ms` means the end of the queue. `queue_id` and `offset` are absent or -1
    where the request is about all queues, and about a time.
    """

    topic: str
    group: str
    timestamp_ms: Long = field(name="timestamp")
    is_force: bool = True
    queue_id: Int | None = None
    offset: Long | None = None


class CloneGroupOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET; without a topic it is about all topics of the source."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetConsumerStatusRequestHeader(Header, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and GET_CONSUMER_STATUS_FROM_CLIENT from broker to
    client; `client_addr` is a client id, none for all members."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO, to the broker and from there to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY, to the broker and from there to the client; `msg_id` is the offset
    message id, `broker_name` is filled in by the broker."""

    consumer_group: str
    msg_id: str
    client_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class GetConsumeStatsRequestHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS; `topic_list` is joined by semicolons and goes before `topic`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONSUME_STATS; `is_order` asks for ordered topics only."""

    is_order: bool


class QueryConsumeTimeSpanRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QueryConsumeQueueRequestHeader(Header, frozen=True, kw_only=True):
    """QUERY_CONSUME_QUEUE; `index` is the queue offset of the first unit."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class ViewBrokerStatsDataRequestHeader(Header, frozen=True, kw_only=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE; `msg_id` is the offset message id."""

    msg_id: str


class ListHalvesRequestHeader(Header, frozen=True, kw_only=True):
    """LEDGERMQ_LIST_HALVES; `state` is undecided or discarded, `offset` the first queue offset in
    the half topic or among the discarded, from which the page goes on."""

    state: str = "undecided"
    offset: Long = 0
    count_max: Int = 32
    topic: str | None = None
    producer_group: str | None = None


class HalfRequestHeader(Header, frozen=True, kw_only=True):
    """LEDGERMQ_SHOW_HALF and LEDGERMQ_DISCARD_HALF; `msg_id` is the half's offset message id."""

    msg_id: str


class ResetMasterFlushOffsetHeader(Header, frozen=True, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: Long | None = None


# A replica and the members of its group: requests of our own.


class StatusRequestHeader(Header, frozen=True, kw_only=True):
    """LEDGERMQ_STATUS; `queues`: with the offsets of every queue, of which there may be 100,000."""

    queues: bool = False


class ChangeMemberRequestHeader(Header, frozen=True, kw_only=True):
    """LEDGERMQ_CHANGE_MEMBER; `change` is add, promote or remove, and add needs the rest."""

    change: str
    node: str
    address: str = ""
    store_id: str = ""


class TransferLeadershipRequestHeader(Header, frozen=True, kw_only=True):
    """LEDGERMQ_TRANSFER; `node` shall lead."""

    node: str


# Users of RocketMQ 5.x and what they may do.


class UserRequestHeader(Header, frozen=True, kw_only=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER and AUTH_GET_USER.

    Without a name the handler refuses with 29, as RocketMQ does: it is blank.
    """

    username: str = ""


class ListUsersRequestHeader(Header, frozen=True, kw_only=True):
    """AUTH_LIST_USER; `name_filter` is part of a name."""

    name_filter: str = field(name="filter", default="")


class AclRequestHeader(Header, frozen=True, kw_only=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL and AUTH_GET_ACL; `subject` is "User:name"."""

    subject: str


class DeleteAclRequestHeader(Header, frozen=True, kw_only=True):
    """AUTH_DELETE_ACL; without a resource it is about all entries."""

    subject: str
    policy_type: str = ""
    resource: str = ""


class ListAclsRequestHeader(Header, frozen=True, kw_only=True):
    """AUTH_LIST_ACL; both filters are parts of what they name."""

    subject_filter: str = ""
    resource_filter: str = ""


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
