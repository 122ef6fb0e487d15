"""Every request that a broker serves: code, handler, fields, answer, bodies.

Place in the data path: `broker.process.server` builds its dispatch from `SERVED`. The tables of
requests in docs/DIVERGENCE.md are made from it: `python -m broker.process.request_table` prints
them, with the path of that file it brings them up to date there. What is served elsewhere or not at
all stands in `broker.process.not_served`.

Invariants (tests/broker/test_request_table.py): a code stands in one row, or is not served for a
reason, or goes to somebody else; every handler is there; a request without a field that is marked
as required is refused by that name.

Fields are written as `name:T`, T being S (text), I (32 bits), L (64 bits) or B (true, false), with
a star where they are required. The module is one flat list, whose lines may be more than 500.
Source: RocketMQ 5.3 RequestCode and its request headers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from broker.process.not_served import NOT_SERVED
from broker.process.processors import Processors
from broker.request.request import Request
from remoting.protocol.codes import RequestCode

__all__ = ["SERVED", "Field", "Served", "dispatch_of", "tables", "updated"]

_BEGIN_MARK: Final = (
    "<!-- requests: python -m broker.process.request_table docs/DIVERGENCE.md -->\n"
)
_END_MARK: Final = "<!-- end of requests -->"
_SEND: Final = (
    "producerGroup:S topic:S* defaultTopic:S defaultTopicQueueNums:I queueId:I* sysFlag:I* "
    "bornTimestamp:L* flag:I properties:S reconsumeTimes:I unitMode:B maxReconsumeTimes:I batch:B"
)
_SEND_V2: Final = "a:S b:S* c:S d:I e:I* f:I* g:L* h:I i:S j:I k:B l:I m:B n:S"
_SENT: Final = "msgId queueId queueOffset transactionId recallHandle MSG_REGION TRACE_ON"
_PULL: Final = (
    "consumerGroup:S* topic:S* queueId:I* queueOffset:L* maxMsgNums:I* sysFlag:I* commitOffset:L "
    "suspendTimeoutMillis:L subVersion:L subscription:S expressionType:S maxMsgBytes:I"
)
_PULLED: Final = "suggestWhichBrokerId nextBeginOffset minOffset maxOffset"
_QUEUE: Final = "topic:S* queueId:I*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a request's header."""

    name: str
    type: str  # S, I, L or B
    required: bool


@dataclass(frozen=True, slots=True)
class Served:
    """One row. `handler` is a path from `Processors`; `body` says what bodies are, where any."""

    code: RequestCode
    handler: str
    request: str = ""
    response: str = ""
    body: str = ""

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def fields(self) -> list[Field]:
        return [
            Field(name=name, type=kind[0], required=kind.endswith("*"))
            for name, _, kind in (item.partition(":") for item in self.request.split())
        ]


_C = RequestCode
SERVED: Final[tuple[Served, ...]] = (
    # Sending.
    Served(_C.SEND_MESSAGE, "send.handle", _SEND, _SENT, "the message"),
    Served(_C.SEND_MESSAGE_V2, "send.handle", _SEND_V2, _SENT, "the message"),
    Served(_C.SEND_BATCH_MESSAGE, "send.handle", _SEND_V2, _SENT, "the messages, batch encoding"),
    Served(_C.SEND_REPLY_MESSAGE, "reply.handle", _SEND, _SENT, "the reply"),
    Served(_C.SEND_REPLY_MESSAGE_V2, "reply.handle", _SEND_V2, _SENT, "the reply"),
    Served(
        _C.CONSUMER_SEND_MSG_BACK,
        "send_back.handle",
        "offset:L* group:S* delayLevel:I* originMsgId:S originTopic:S unitMode:B "
        "maxReconsumeTimes:I",
    ),
    Served(
        _C.END_TRANSACTION,
        "end_transaction.handle",
        "producerGroup:S* tranStateTableOffset:L* commitLogOffset:L* commitOrRollback:I* msgId:S "
        "fromTransactionCheck:B transactionId:S topic:S",
    ),
    Served(
        _C.RECALL_MESSAGE,
        "recall.handle",
        "producerGroup:S topic:S* recallHandle:S*",
        "msgId MSG_REGION",
    ),
    # Consuming.
    Served(_C.PULL_MESSAGE, "pull.handle", _PULL, _PULLED, "answer: records"),
    Served(_C.LITE_PULL_MESSAGE, "pull.handle", _PULL, _PULLED, "answer: records"),
    Served(
        _C.QUERY_CONSUMER_OFFSET,
        "offsets.query",
        f"consumerGroup:S* {_QUEUE} setZeroIfNotFound:B",
        "offset",
    ),
    Served(
        _C.UPDATE_CONSUMER_OFFSET, "offsets.update", f"consumerGroup:S* {_QUEUE} commitOffset:L*"
    ),
    Served(_C.GET_MAX_OFFSET, "offsets.maximum", f"{_QUEUE} committed:B", "offset"),
    Served(_C.GET_MIN_OFFSET, "offsets.minimum", _QUEUE, "offset"),
    Served(
        _C.SEARCH_OFFSET_BY_TIMESTAMP,
        "queries.search_offset",
        f"{_QUEUE} timestamp:L* boundaryType:S",
        "offset",
    ),
    Served(_C.GET_EARLIEST_MSG_STORETIME, "queries.earliest_store_time", _QUEUE, "timestamp"),
    Served(
        _C.QUERY_MESSAGE,
        "query_message.handle",
        "topic:S* key:S* maxNum:I* beginTimestamp:L* endTimestamp:L* _UNIQUE_KEY_QUERY:B",
        "indexLastUpdateTimestamp indexLastUpdatePhyoffset",
        "answer: records",
    ),
    Served(
        _C.VIEW_MESSAGE_BY_ID, "queries.view_message", "offset:L* topic:S", "", "answer: record"
    ),
    Served(_C.LOCK_BATCH_MQ, "locks.lock", "", "", "LockBatchRequestBody; lockOKMQSet"),
    Served(_C.UNLOCK_BATCH_MQ, "locks.unlock", "", "", "UnlockBatchRequestBody"),
    # Popping.
    Served(
        _C.POP_MESSAGE,
        "pop.handle",
        "consumerGroup:S* topic:S* queueId:I* maxMsgNums:I* invisibleTime:L* pollTime:L* "
        "bornTime:L* initMode:I* expType:S exp:S order:B attemptId:S",
        "popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo orderCountInfo",
        "answer: records",
    ),
    Served(_C.ACK_MESSAGE, "pop_ack.ack", f"consumerGroup:S* {_QUEUE} offset:L* extraInfo:S*"),
    Served(_C.BATCH_ACK_MESSAGE, "pop_ack.batch_ack", "", "", "BatchAckMessageRequestBody"),
    Served(
        _C.CHANGE_MESSAGE_INVISIBLETIME,
        "pop_ack.change",
        f"consumerGroup:S* {_QUEUE} offset:L* extraInfo:S* invisibleTime:L*",
        "popTime invisibleTime reviveQid",
    ),
    Served(
        _C.PEEK_MESSAGE,
        "pop_peek.peek",
        f"consumerGroup:S* {_QUEUE} maxMsgNums:I*",
        "popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo",
        "answer: records",
    ),
    Served(
        _C.NOTIFICATION,
        "pop_peek.notification",
        f"consumerGroup:S* {_QUEUE} pollTime:L* bornTime:L order:B attemptId:S",
        "hasMsg pollingFull",
    ),
    Served(_C.POLLING_INFO, "pop_peek.polling_info", f"consumerGroup:S* {_QUEUE}", "pollingNum"),
    Served(
        _C.QUERY_ASSIGNMENT,
        "assignment.query",
        "",
        "",
        "QueryAssignmentRequestBody; messageQueueAssignments",
    ),
    Served(
        _C.SET_MESSAGE_REQUEST_MODE,
        "assignment.set_mode",
        "",
        "",
        "SetMessageRequestModeRequestBody",
    ),
    # Clients and groups.
    Served(
        _C.HEART_BEAT,
        "clients.heartbeat",
        "",
        "IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE",
        "HeartbeatData",
    ),
    Served(
        _C.UNREGISTER_CLIENT, "clients.unregister", "clientID:S* producerGroup:S consumerGroup:S"
    ),
    Served(_C.CHECK_CLIENT_CONFIG, "clients.check_config", "", "", "CheckClientRequestBody"),
    Served(
        _C.GET_CONSUMER_LIST_BY_GROUP,
        "clients.consumer_list",
        "consumerGroup:S*",
        "",
        "answer: consumerIdList",
    ),
    Served(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "groups.update", "", "", "SubscriptionGroupConfig"
    ),
    Served(
        _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        "groups.all_groups",
        "",
        "",
        "answer: subscriptionGroupTable, dataVersion",
    ),
    Served(
        _C.GET_SUBSCRIPTIONGROUP_CONFIG,
        "groups.group_config",
        "group:S*",
        "",
        "answer: SubscriptionGroupConfig",
    ),
    Served(
        _C.GET_CONSUMER_CONNECTION_LIST,
        "connections.consumers",
        "consumerGroup:S*",
        "",
        "answer: ConsumerConnection",
    ),
    Served(
        _C.GET_PRODUCER_CONNECTION_LIST,
        "connections.producers",
        "producerGroup:S*",
        "",
        "answer: ProducerConnection",
    ),
    Served(
        _C.GET_ALL_PRODUCER_INFO, "connections.all_producers", "", "", "answer: ProducerTableInfo"
    ),
    Served(
        _C.QUERY_TOPIC_CONSUME_BY_WHO,
        "connections.groups_of_topic",
        "topic:S*",
        "",
        "answer: GroupList",
    ),
    Served(
        _C.QUERY_TOPICS_BY_CONSUMER,
        "connections.topics_of_group",
        "group:S*",
        "",
        "answer: TopicList",
    ),
    Served(
        _C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        "connections.subscription",
        "group:S* topic:S*",
        "",
        "answer: QuerySubscriptionResponseBody",
    ),
    Served(
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "groups.update_list", "", "", "groupConfigList"
    ),
    Served(_C.DELETE_SUBSCRIPTIONGROUP, "groups.delete", "groupName:S* cleanOffset:B"),
    Served(
        _C.INVOKE_BROKER_TO_RESET_OFFSET,
        "resets.reset",
        "topic:S* group:S* timestamp:L* isForce:B queueId:I offset:L",
        "",
        "answer: offsetTable",
    ),
    Served(_C.CLONE_GROUP_OFFSET, "resets.clone", "srcGroup:S* destGroup:S* topic:S offline:B"),
    Served(
        _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        "relays.consumer_status",
        "topic:S* group:S* clientAddr:S",
        "",
        "answer: consumerTable",
    ),
    Served(
        _C.GET_CONSUMER_RUNNING_INFO,
        "relays.running_info",
        "consumerGroup:S* clientId:S* jstackEnable:B",
        "",
        "the client's, both ways",
    ),
    Served(
        _C.CONSUME_MESSAGE_DIRECTLY,
        "relays.consume_directly",
        "consumerGroup:S* clientId:S msgId:S* topic:S",
        "",
        "answer: the client's",
    ),
    # Administration.
    Served(
        _C.UPDATE_AND_CREATE_TOPIC,
        "admin.update_topic",
        "topic:S* defaultTopic:S readQueueNums:I* writeQueueNums:I* perm:I* topicFilterType:S "
        "topicSysFlag:I order:B attributes:S force:B",
    ),
    Served(
        _C.GET_ALL_TOPIC_CONFIG,
        "admin.all_topics",
        "",
        "",
        "answer: topicConfigTable, dataVersion",
    ),
    Served(_C.GET_TOPIC_CONFIG, "admin.topic_config", "topic:S*", "", "answer: TopicConfig"),
    Served(
        _C.GET_TOPIC_STATS_INFO, "progress.topic_stats", "topic:S*", "", "answer: TopicStatsTable"
    ),
    Served(
        _C.GET_CONSUME_STATS,
        "progress.consume_stats",
        "consumerGroup:S* topic:S topicList:S",
        "",
        "answer: ConsumeStats",
    ),
    Served(_C.GET_BROKER_RUNTIME_INFO, "runtime_info.handle", "", "", "answer: KVTable"),
    Served(_C.UPDATE_AND_CREATE_TOPIC_LIST, "admin.update_topics", "", "", "topicConfigList"),
    Served(_C.DELETE_TOPIC_IN_BROKER, "admin.delete_topic", "topic:S*"),
    Served(_C.CLEAN_UNUSED_TOPIC, "admin.clean_unused_topics"),
    Served(
        _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "admin.system_topics", "", "", "answer: TopicList"
    ),
    Served(
        _C.QUERY_CONSUME_TIME_SPAN,
        "progress.time_span",
        "topic:S* group:S*",
        "",
        "answer: consumeTimeSpanSet",
    ),
    Served(
        _C.GET_BROKER_CONSUME_STATS,
        "progress.broker_consume_stats",
        "isOrder:B*",
        "",
        "answer: ConsumeStatsList",
    ),
    Served(
        _C.QUERY_CONSUME_QUEUE,
        "progress.consume_queue",
        "topic:S* queueId:I* index:L* count:I* consumerGroup:S",
        "",
        "answer: QueryConsumeQueueResponseBody",
    ),
    Served(
        _C.GET_ALL_CONSUMER_OFFSET, "progress.all_consumer_offsets", "", "", "answer: offsetTable"
    ),
    Served(_C.GET_ALL_DELAY_OFFSET, "progress.all_delay_offsets", "", "", "answer: offsetTable"),
    Served(
        _C.VIEW_BROKER_STATS_DATA,
        "stats.view",
        "statsName:S* statsKey:S*",
        "",
        "answer: BrokerStatsData",
    ),
    Served(_C.GET_BROKER_CONFIG, "settings.show", "", "version", "answer: properties text"),
    Served(_C.UPDATE_BROKER_CONFIG, "settings.update", "", "", "properties text"),
    Served(_C.DELETE_EXPIRED_COMMITLOG, "maintenance.delete_expired_log"),
    Served(_C.CLEAN_EXPIRED_CONSUMEQUEUE, "maintenance.clean_expired_queues"),
    Served(_C.RESUME_CHECK_HALF_MESSAGE, "maintenance.resume_half", "msgId:S*"),
    Served(_C.GET_BROKER_HA_STATUS, "replicas.ha_status", "", "", "answer: HARuntimeInfo"),
    Served(
        _C.RESET_MASTER_FLUSH_OFFSET, "replicas.reset_master_flush_offset", "masterFlushOffset:L"
    ),
    Served(_C.GET_COLD_DATA_FLOW_CTR_INFO, "maintenance.cold_data", "", "", "answer: its tables"),
    Served(_C.POP_ROLLBACK, "maintenance.pop_rollback"),
    # Users and permissions of 5.x.
    Served(_C.AUTH_CREATE_USER, "users.create", "username:S*", "", "UserInfo"),
    Served(_C.AUTH_UPDATE_USER, "users.update", "username:S*", "", "UserInfo"),
    Served(_C.AUTH_DELETE_USER, "users.delete", "username:S*"),
    Served(_C.AUTH_GET_USER, "users.get", "username:S*", "", "answer: UserInfo"),
    Served(_C.AUTH_LIST_USER, "users.list_all", "filter:S", "", "answer: list of UserInfo"),
    Served(_C.AUTH_CREATE_ACL, "grants.create", "subject:S*", "", "AclInfo"),
    Served(_C.AUTH_UPDATE_ACL, "grants.create", "subject:S*", "", "AclInfo"),
    Served(_C.AUTH_DELETE_ACL, "grants.delete", "subject:S* policyType:S resource:S"),
    Served(_C.AUTH_GET_ACL, "grants.get", "subject:S*", "", "answer: AclInfo"),
    Served(
        _C.AUTH_LIST_ACL,
        "grants.list_all",
        "subjectFilter:S resourceFilter:S",
        "",
        "answer: list of AclInfo",
    ),
    # ledgermq's own.
    Served(_C.LEDGERMQ_STATUS, "admin.status", "", "", "answer: how this replica stands"),
    Served(_C.LEDGERMQ_MEMBERS, "members.members", "", "", "answer: voters, learners"),
    Served(_C.LEDGERMQ_CHANGE_MEMBER, "members.change", "", "", "the change"),
    Served(_C.LEDGERMQ_TRANSFER, "members.transfer", "", "", "the node that shall lead"),
    Served(_C.LEDGERMQ_CLOCK, "clocks.answer", "", "group wallMillis groupMillis"),
)


def dispatch_of(processors: Processors) -> dict[int, Callable[[Request], None]]:
    """What `broker.process.server` looks each request up in."""
    return {int(row.code): attrgetter(row.handler)(processors) for row in SERVED}


def tables() -> str:
    """The tables of docs/DIVERGENCE.md, as Markdown."""
    lines = ["| code | request | fields, * required | answer | body |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.code:d} | {row.name} | {_told(row)} | {', '.join(row.response.split())} "
        f"| {row.body} |"
        for row in sorted(SERVED, key=lambda row: row.code)
    ]
    lines += ["", "| requests that are not served | why |", "|---|---|"]
    of_reason: dict[str, list[str]] = {}
    for code, reason in sorted(NOT_SERVED.items()):
        of_reason.setdefault(reason, []).append(f"{code.name} ({code:d})")
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in sorted(of_reason.items())]
    return "\n".join(lines) + "\n"


def updated(document: str) -> str:
    """The document with the tables between its marks as they are now. Raises ValueError."""
    begin, end = document.index(_BEGIN_MARK) + len(_BEGIN_MARK), document.index(_END_MARK)
    return f"{document[:begin]}{tables()}{document[end:]}"


def _told(row: Served) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'*' if field.required else ''}" for field in row.fields
    )


def _main(arguments: list[str]) -> None:
    if not arguments:
        sys.stdout.write(tables())
    for path in map(Path, arguments):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
