"""Subscription groups: their configuration.

Place in the data path: a group's configuration changes through the log (promise G5); it says for
pulls whether the group may consume, for sent-back messages how often they are retried. A group that
was never configured has RocketMQ's defaults. Rules: RocketMQ SubscriptionGroupManager,
AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from broker.entry.payload import DeleteGroupCommand, GroupCommand
from broker.entry.topic_attributes import GROUP_ATTRIBUTES, BadAttributeError, altered
from broker.entry.topics import TopicNameError, check_group_name
from broker.request.commit import commit, commit_each
from broker.request.desk import Desk
from broker.request.known_groups import known_groups
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)

__all__ = ["GroupProcessor"]

_CONFIG_SIZE_MAX: Final = 65_536
_SHOWN_SIZE_MAX: Final = 4_096  # of each field that is stored for others to read
_T = TypeVar("_T")


class _GroupConfig(msgspec.Struct):
    """Settings that the broker obeys or shows; RocketMQ's names and defaults."""

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
    # For RocketMQ's proxy and tools: stored and shown as they came, and left out where there are
    # none, since a Java client reads null as a policy that is not there.
    groupRetryPolicy: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    subscriptionDataSet: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class _GroupConfigs(msgspec.Struct):
    groupConfigList: list[_GroupConfig]


class _GroupNames(msgspec.Struct):
    groupNameList: list[str] = []
    cleanOffset: bool = False


class GroupProcessor:
    """Handler of the configuration of subscription groups."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def update(self, request: Request) -> None:
        """Configure a group (UPDATE_AND_CREATE_SUBSCRIPTIONGROUP). Raises RefusedError."""
        self._commit(request, [_decoded(request.command.body, _GroupConfig)])

    def update_list(self, request: Request) -> None:
        """Configure all groups of a list or none (UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST).
        Raises RefusedError."""
        self._commit(request, _decoded(request.command.body, _GroupConfigs).groupConfigList)

    def _commit(self, request: Request, configs: list[_GroupConfig]) -> None:
        known = self._replica.state.groups
        for config in configs:
            _check(config)
        fresh = {config.groupName for config in configs} - known.keys()
        if len(known) + len(fresh) > self._replica.state.limits.groups_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most groups already")
        commands = [
            GroupCommand(config.groupName, _stored(config, known.get(config.groupName)))
            for config in configs
        ]
        if commands:
            commit(self._leadership, request, commands)
        else:
            request.reply(ResponseCode.SUCCESS)

    def delete(self, header: DeleteSubscriptionGroupRequestHeader, request: Request) -> None:
        """Delete a group, with cleanOffset its consumer offsets too (DELETE_SUBSCRIPTIONGROUP).
        Raises RefusedError."""
        self._delete(request, [header.group_name], clean_offset=header.clean_offset)

    def delete_list(self, request: Request) -> None:
        """Delete the groups of a list, each as `delete` does (DELETE_SUBSCRIPTION_GROUP_LIST); none
        where one of the names is none. Raises RefusedError; else the answer follows."""
        gone = _decoded(request.command.body, _GroupNames)
        if not gone.groupNameList:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, "The specified group name list is blank."
            )
        names = list(dict.fromkeys(gone.groupNameList))
        self._delete(request, names, clean_offset=gone.cleanOffset)

    def _delete(self, request: Request, names: list[str], *, clean_offset: bool) -> None:
        for name in names:
            _check_name(name)
        commands = [DeleteGroupCommand(name, clean_offset) for name in names]
        commit_each(self._leadership, request, commands)

    def all_groups(self, request: Request) -> None:
        """Answer with all groups that are configured, are connected or have offsets
        (GET_ALL_SUBSCRIPTIONGROUP_CONFIG)."""
        replica = self._replica
        table: dict[str, Any] = {
            name: _GroupConfig(groupName=name) for name in known_groups(replica, self._desk)
        }
        table.update(replica.state.groups)
        body = {
            "subscriptionGroupTable": table,
            "forbiddenTable": {},
            "dataVersion": {
                "stateVersion": self._leadership.term,
                "timestamp": replica.state.store_timestamp_ms,
                "counter": len(replica.state.groups),
            },
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def group_config(
        self, header: GetSubscriptionGroupConfigRequestHeader, request: Request
    ) -> None:
        """Answer with a group's configuration, or the defaults (GET_SUBSCRIPTIONGROUP_CONFIG)."""
        group = header.group
        config = self._replica.state.groups.get(group) or _GroupConfig(groupName=group)
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(config))


def _decoded(body: bytes, kind: type[_T]) -> _T:
    if len(body) > _CONFIG_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a group configuration of {len(body)} bytes; at most {_CONFIG_SIZE_MAX} are allowed",
        )
    try:
        return fastjson.decode_request(body, kind)
    except BodyError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error


def _check_name(name: str) -> None:
    try:
        check_group_name(name)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error


def _check(config: _GroupConfig) -> None:
    _check_name(config.groupName)
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
    for name in ("groupRetryPolicy", "subscriptionDataSet"):
        size = len(msgspec.json.encode(getattr(config, name) or None))
        if size > _SHOWN_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"group {config.groupName}: {name} has {size} bytes; at most {_SHOWN_SIZE_MAX} "
                "are allowed",
            )


def _stored(config: _GroupConfig, known: dict[str, Any] | None) -> dict[str, Any]:
    """Return the configuration as it goes into the log: attributes are changed, "+name" and
    "-name", all else is replaced. Raises RefusedError."""
    fields: dict[str, Any] = msgspec.to_builtins(config)
    stored = {name: value for name, value in fields.items() if value is not None}
    before = None if known is None else known.get("attributes") or {}
    try:
        stored["attributes"] = altered(before, config.attributes, GROUP_ATTRIBUTES)
    except BadAttributeError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
    return stored
