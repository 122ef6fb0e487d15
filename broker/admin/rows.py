"""What administrators and operators ask: the requests of this room.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.entry.policies import Action
from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR, FREE, SIGNATURE, administer, consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.GET_CONSUMER_CONNECTION_LIST,
        "connections.consumers",
        fields="consumerGroup:S*",
        body="answer: ConsumerConnection",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_PRODUCER_CONNECTION_LIST,
        "connections.producers",
        fields="producerGroup:S*",
        body="answer: ProducerConnection",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_ALL_PRODUCER_INFO,
        "connections.all_producers",
        body="answer: ProducerTableInfo",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_TOPIC_CONSUME_BY_WHO,
        "connections.groups_of_topic",
        fields="topic:S*",
        body="answer: GroupList",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_TOPICS_BY_CONSUMER,
        "connections.topics_of_group",
        fields="group:S*",
        body="answer: TopicList",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        "connections.subscription",
        fields="group:S* topic:S*",
        body="answer: QuerySubscriptionResponseBody",
        needs=SIGNATURE,
    ),
    Row(
        _C.INVOKE_BROKER_TO_RESET_OFFSET,
        "resets.reset",
        fields="topic:S* group:S* timestamp:L* isForce:B queueId:I offset:L",
        body="answer: offsetTable",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.CLONE_GROUP_OFFSET,
        "resets.clone",
        fields="srcGroup:S* destGroup:S* topic:S offline:B",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        "relays.consumer_status",
        fields="topic:S* group:S* clientAddr:S",
        body="answer: consumerTable",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_CONSUMER_RUNNING_INFO,
        "relays.running_info",
        fields="consumerGroup:S* clientId:S* jstackEnable:B",
        body="the client's, both ways",
        needs=SIGNATURE,
    ),
    Row(
        _C.CONSUME_MESSAGE_DIRECTLY,
        "relays.consume_directly",
        fields="consumerGroup:S* clientId:S msgId:S* topic:S",
        body="answer: the client's",
        needs=consume(topic="topic", group="consumerGroup", stored=True),
    ),
    Row(
        _C.UPDATE_AND_CREATE_TOPIC,
        "admin.update_topic",
        fields="topic:S* defaultTopic:S readQueueNums:I* writeQueueNums:I* perm:I* "
        "topicFilterType:S topicSysFlag:I order:B attributes:S force:B",
        needs=administer(Action.CREATE),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_TOPIC_CONFIG,
        "admin.all_topics",
        body="answer: topicConfigTable, dataVersion",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_TOPIC_CONFIG,
        "admin.topic_config",
        fields="topic:S*",
        body="answer: TopicConfig",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_TOPIC_STATS_INFO,
        "progress.topic_stats",
        fields="topic:S*",
        body="answer: TopicStatsTable",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_CONSUME_STATS,
        "progress.consume_stats",
        fields="consumerGroup:S* topic:S topicList:S",
        body="answer: ConsumeStats",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(_C.GET_BROKER_RUNTIME_INFO, "runtime_info.handle", body="answer: KVTable", needs=SIGNATURE),
    Row(
        _C.UPDATE_AND_CREATE_TOPIC_LIST,
        "admin.update_topics",
        body="topicConfigList",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.DELETE_TOPIC_IN_BROKER,
        "admin.delete_topic",
        fields="topic:S*",
        needs=administer(Action.DELETE),
        forwarded=Forwarded.ALWAYS,
    ),
    Row(_C.CLEAN_UNUSED_TOPIC, "admin.clean_unused_topics", needs=ADMINISTRATOR),
    Row(
        _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        "admin.system_topics",
        body="answer: TopicList",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_CONSUME_TIME_SPAN,
        "progress.time_span",
        fields="topic:S* group:S*",
        body="answer: consumeTimeSpanSet",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_BROKER_CONSUME_STATS,
        "progress.broker_consume_stats",
        fields="isOrder:B*",
        body="answer: ConsumeStatsList",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.QUERY_CONSUME_QUEUE,
        "progress.consume_queue",
        fields="topic:S* queueId:I* index:L* count:I* consumerGroup:S",
        body="answer: QueryConsumeQueueResponseBody",
        needs=consume(topic="topic"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_CONSUMER_OFFSET,
        "progress.all_consumer_offsets",
        body="answer: offsetTable",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_DELAY_OFFSET,
        "progress.all_delay_offsets",
        body="answer: offsetTable",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.VIEW_BROKER_STATS_DATA,
        "stats.view",
        fields="statsName:S* statsKey:S*",
        body="answer: BrokerStatsData",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_BROKER_CONFIG,
        "settings.show",
        answer="version",
        body="answer: properties text",
        needs=SIGNATURE,
    ),
    Row(_C.UPDATE_BROKER_CONFIG, "settings.update", body="properties text", needs=ADMINISTRATOR),
    Row(_C.DELETE_EXPIRED_COMMITLOG, "maintenance.delete_expired_log", needs=ADMINISTRATOR),
    Row(_C.CLEAN_EXPIRED_CONSUMEQUEUE, "maintenance.clean_expired_queues", needs=ADMINISTRATOR),
    Row(
        _C.RESUME_CHECK_HALF_MESSAGE,
        "maintenance.resume_half",
        fields="msgId:S*",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_BROKER_HA_STATUS, "replicas.ha_status", body="answer: HARuntimeInfo", needs=SIGNATURE
    ),
    Row(
        _C.RESET_MASTER_FLUSH_OFFSET,
        "replicas.reset_master_flush_offset",
        fields="masterFlushOffset:L",
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.GET_COLD_DATA_FLOW_CTR_INFO,
        "maintenance.cold_data",
        body="answer: its tables",
        needs=SIGNATURE,
    ),
    Row(_C.POP_ROLLBACK, "maintenance.pop_rollback", needs=ADMINISTRATOR),
    Row(
        _C.LEDGERMQ_STATUS, "admin.status", body="answer: how this replica stands", needs=SIGNATURE
    ),
    Row(_C.LEDGERMQ_MEMBERS, "members.members", body="answer: voters, learners", needs=SIGNATURE),
    Row(_C.LEDGERMQ_CHANGE_MEMBER, "members.change", body="the change", needs=ADMINISTRATOR),
    Row(
        _C.LEDGERMQ_TRANSFER,
        "members.transfer",
        body="the node that shall lead",
        needs=ADMINISTRATOR,
    ),
    Row(_C.LEDGERMQ_CLOCK, "clocks.answer", answer="group wallMillis groupMillis", needs=FREE),
)
