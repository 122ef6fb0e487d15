"""Requests of administrators and operators.

Place in the data path: `broker.process.request_table` joins the rows of all rooms.
"""

from __future__ import annotations

from typing import Final

from broker.entry.policies import Action
from broker.request.forwarding import Forwarded
from broker.request.needs import ADMINISTRATOR, FREE, SIGNATURE, administer, consume
from broker.request.row import Row
from remoting.protocol.codes import RequestCode
from remoting.protocol.headers import (
    ChangeMemberRequestHeader,
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetMasterFlushOffsetHeader,
    ResetOffsetRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    TopicRequestHeader,
    TransferLeadershipRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)

__all__ = ["ROWS"]

_C: Final = RequestCode


ROWS: Final[tuple[Row, ...]] = (
    Row(
        _C.GET_CONSUMER_CONNECTION_LIST,
        "client_listing.consumers",
        header=GetConsumerConnectionListRequestHeader,
        body="answer: ConsumerConnection",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_PRODUCER_CONNECTION_LIST,
        "client_listing.producers",
        header=GetProducerConnectionListRequestHeader,
        body="answer: ProducerConnection",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_ALL_PRODUCER_INFO,
        "client_listing.all_producers",
        body="answer: ProducerTableInfo",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_TOPIC_CONSUME_BY_WHO,
        "client_listing.groups_of_topic",
        header=TopicRequestHeader,
        body="answer: GroupList",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_TOPICS_BY_CONSUMER,
        "client_listing.topics_of_group",
        header=QueryTopicsByConsumerRequestHeader,
        body="answer: TopicList",
        needs=SIGNATURE,
    ),
    Row(
        _C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        "client_listing.subscription",
        header=QuerySubscriptionByConsumerRequestHeader,
        body="answer: QuerySubscriptionResponseBody",
        needs=SIGNATURE,
    ),
    Row(
        _C.INVOKE_BROKER_TO_RESET_OFFSET,
        "offset_reset.reset",
        header=ResetOffsetRequestHeader,
        leader=True,
        body="answer: offsetTable",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.CLONE_GROUP_OFFSET,
        "offset_reset.clone",
        header=CloneGroupOffsetRequestHeader,
        leader=True,
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        "consumer_relay.consumer_status",
        header=GetConsumerStatusRequestHeader,
        body="answer: consumerTable",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_CONSUMER_RUNNING_INFO,
        "consumer_relay.running_info",
        header=GetConsumerRunningInfoRequestHeader,
        body="the client's, both ways",
        needs=SIGNATURE,
    ),
    Row(
        _C.CONSUME_MESSAGE_DIRECTLY,
        "consumer_relay.consume_directly",
        header=ConsumeMessageDirectlyResultRequestHeader,
        body="answer: the client's",
        needs=consume(topic="topic", group="consumerGroup", stored=True),
    ),
    Row(
        _C.UPDATE_AND_CREATE_TOPIC,
        "admin.update_topic",
        header=CreateTopicRequestHeader,
        leader=True,
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
        header=TopicRequestHeader,
        body="answer: TopicConfig",
        needs=SIGNATURE,
    ),
    Row(
        _C.GET_TOPIC_STATS_INFO,
        "consume_stats.topic_stats",
        header=TopicRequestHeader,
        body="answer: TopicStatsTable",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_CONSUME_STATS,
        "consume_stats.consume_stats",
        header=GetConsumeStatsRequestHeader,
        body="answer: ConsumeStats",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(_C.GET_BROKER_RUNTIME_INFO, "runtime_info.handle", body="answer: KVTable", needs=SIGNATURE),
    Row(
        _C.UPDATE_AND_CREATE_TOPIC_LIST,
        "admin.update_topics",
        leader=True,
        body="topicConfigList",
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.DELETE_TOPIC_IN_BROKER,
        "admin.delete_topic",
        header=DeleteTopicRequestHeader,
        leader=True,
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
        "consume_stats.time_span",
        header=QueryConsumeTimeSpanRequestHeader,
        body="answer: consumeTimeSpanSet",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_BROKER_CONSUME_STATS,
        "consume_stats.broker_consume_stats",
        header=GetConsumeStatsInBrokerHeader,
        body="answer: ConsumeStatsList",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.QUERY_CONSUME_QUEUE,
        "consume_stats.consume_queue",
        header=QueryConsumeQueueRequestHeader,
        body="answer: QueryConsumeQueueResponseBody",
        needs=consume(topic="topic"),
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_CONSUMER_OFFSET,
        "consume_stats.all_consumer_offsets",
        body="answer: offsetTable, dataVersion",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_ALL_DELAY_OFFSET,
        "consume_stats.all_delay_offsets",
        body="answer: offsetTable",
        needs=SIGNATURE,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.VIEW_BROKER_STATS_DATA,
        "stats.view",
        header=ViewBrokerStatsDataRequestHeader,
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
        header=ResumeCheckHalfMessageRequestHeader,
        leader=True,
        needs=ADMINISTRATOR,
        forwarded=Forwarded.FOR_OTHERS,
    ),
    Row(
        _C.GET_BROKER_HA_STATUS,
        "ha_status.ha_status",
        body="answer: HARuntimeInfo",
        needs=SIGNATURE,
    ),
    Row(
        _C.RESET_MASTER_FLUSH_OFFSET,
        "ha_status.reset_master_flush_offset",
        header=ResetMasterFlushOffsetHeader,
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
    Row(
        _C.LEDGERMQ_MEMBERS,
        "raft_members.members",
        body="answer: voters, learners",
        needs=SIGNATURE,
    ),
    Row(
        _C.LEDGERMQ_CHANGE_MEMBER,
        "raft_members.change",
        header=ChangeMemberRequestHeader,
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.LEDGERMQ_TRANSFER,
        "raft_members.transfer",
        header=TransferLeadershipRequestHeader,
        needs=ADMINISTRATOR,
    ),
    Row(
        _C.LEDGERMQ_FAILPOINTS,
        "failpoints.handle",
        body="request: what to arm, to disarm, the clock; answer: every failpoint",
        needs=ADMINISTRATOR,
    ),
    Row(_C.LEDGERMQ_CLOCK, "clocks.answer", answer="group wallMillis groupMillis", needs=FREE),
)
