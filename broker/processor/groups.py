"""Subscription groups: their configuration, and who is connected of them.

Place in the data path: a group's configuration changes through the log (promise G5); pulls ask it
whether the group may consume, sent-back messages how often they are retried. A group that nobody
configured has RocketMQ's defaults. Rules: RocketMQ SubscriptionGroupManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker.context import BrokerContext
from broker.outcomes import refused_of
from broker.proposer import BusyError, Proposal
from broker.request import RefusedError, Request
from broker.store.payload import GroupCommand
from broker.topics import TopicNameError, check_group_name
from raft.replicated_log import ProposalStatus
from remoting import fastjson
from remoting.codes import ResponseCode
from remoting.errors import BodyError

__all__ = ["GroupProcessor"]

_CONFIG_SIZE_MAX: Final = 65_536


class _GroupConfig(msgspec.Struct):
    """What the broker obeys or shows; RocketMQ's names and defaults."""

    groupName: str
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    consumeMessageOrderly: bool = False
    retryQueueNums: int = 1
    retryMaxTimes: int = 16
    brokerId: int = 0
    whichBrokerWhenConsumeSlowly: int = 1
    notifyConsumerIdsChangedEnable: bool = True
    groupSysFlag: int = 0
    consumeTimeoutMinute: int = 15
    attributes: dict[str, str] = {}


class GroupProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def update(self, request: Request) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: answered once the group is committed."""
        context = self._context
        context.require_leader()
        config = _config_of(request)
        groups = context.state.groups
        if config.groupName not in groups and len(groups) >= context.state.limits.groups_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most groups already")
        command = GroupCommand(config.groupName, msgspec.to_builtins(config))

        def done(status: ProposalStatus | None) -> None:
            refused = refused_of(status, context.not_leader_remark)
            if refused is None:
                request.reply(ResponseCode.SUCCESS)
            else:
                request.refuse(refused)

        try:
            context.proposer.submit(Proposal(commands=[command], on_done=done))
        except BusyError as error:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error

    def all_groups(self, request: Request) -> None:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: those configured and those that are connected."""
        context = self._context
        table: dict[str, Any] = {
            name: _GroupConfig(groupName=name) for name in context.clients.consumer_groups()
        }
        table.update(context.state.groups)
        body = {
            "subscriptionGroupTable": table,
            "forbiddenTable": {},
            "dataVersion": {
                "stateVersion": context.term,
                "timestamp": context.state.store_timestamp_ms,
                "counter": len(context.state.groups),
            },
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def group_config(self, request: Request) -> None:
        """GET_SUBSCRIPTIONGROUP_CONFIG: the defaults where nobody configured the group."""
        group = request.text("group")
        config = self._context.state.groups.get(group) or _GroupConfig(groupName=group)
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(config))

    def consumer_connections(self, request: Request) -> None:
        """GET_CONSUMER_CONNECTION_LIST."""
        group = request.text("consumerGroup")
        description = self._context.clients.describe(group)
        if description is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(description))


def _config_of(request: Request) -> _GroupConfig:
    body = request.command.body
    if len(body) > _CONFIG_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a group configuration of {len(body)} bytes; at most {_CONFIG_SIZE_MAX} are allowed",
        )
    try:
        config = fastjson.decode(body, _GroupConfig)
        check_group_name(config.groupName)
    except (BodyError, TopicNameError) as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    numbers = (
        config.retryQueueNums,
        config.retryMaxTimes,
        config.brokerId,
        config.whichBrokerWhenConsumeSlowly,
        config.groupSysFlag,
        config.consumeTimeoutMinute,
    )
    if not all(-1 <= number < 1 << 31 for number in numbers):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"group {config.groupName}: a number beyond 32 bits"
        )
    return config
