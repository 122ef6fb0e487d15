"""Subscription groups of the part `operator`: configured with all their settings, shown, obeyed.

Place in the data path: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP and DELETE_SUBSCRIPTIONGROUP, and
their forms for lists, at a group's leader; GET_SUBSCRIPTIONGROUP_CONFIG and
GET_ALL_SUBSCRIPTIONGROUP_CONFIG at any replica; and a pull, which a group may only where it is
enabled. The part `groups` has members' offsets beside them.

Invariant: after a change of unknown outcome the group is given up, and another takes its place.

Source: RocketMQ UpdateSubGroupSubCommand, SubscriptionGroupConfig, PullMessageProcessor.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, Final

from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import ABSENT, SettingsRecord
from chaos.workload.parts.operator.requests import OperatorRequests
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["GroupKeeper", "config_text"]

TIMEOUT_MS: Final = 3_000
_WITH_SUBSCRIPTION: Final = 4  # of a pull's sysFlag
_REFUSED: Final = ResponseCode.NO_PERMISSION.value
_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS.value,
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.PULL_OFFSET_MOVED.value,
        _REFUSED,
    }
)
CONNECTED_SHARE: Final = 0.4  # of the questions to a replica go with one beside a member
_ATTRIBUTE: Final = "priority.factor"
_DEFAULTS: Final[Mapping[str, object]] = {
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
}


class GroupKeeper:
    """Changes one subscription group at one broker group, and queries it before each change."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        queue: MessageQueue,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._requests = requests
        self._record = record
        self._queue = queue
        self._broker_group = queue.broker_name
        self._rng = rng
        self._turn = 0
        self._config: dict[str, object] | None = None

    @property
    def _group(self) -> str:
        return f"operator-configured-{self._broker_group}-{self._turn}"

    def _key(self, what: str) -> str:
        return f"{what} {self._group} {self._broker_group}"

    async def step(self) -> None:
        """Query the group everywhere, change it, and query the leader at once."""
        known = True
        for place in self._context.world.layout.groups[self._broker_group]:
            await self._query_config(place.address)
            known &= await self._query_connected(place.address)
        await self._request_pull()
        if not known:
            self._give_up()
            return
        deletes = self._config is not None and self._rng.random() < 0.2
        if not await (self._delete() if deletes else self._configure()):
            self._give_up()
            return
        leader = self._requests.instance.routes.leader(self._broker_group)
        if leader is not None and leader.address is not None:
            await self._query_config(leader.address)
        await self._request_pull()

    def _give_up(self) -> None:
        self._turn += 1
        self._config = None

    # Changes -----------------------------------------------------------------------------------

    async def _configure(self) -> bool:
        """Return whether the outcome is known."""
        rng = self._rng
        config: dict[str, object] = {
            "consumeEnable": rng.random() < 0.5,
            "consumeFromMinEnable": rng.random() < 0.5,
            "consumeBroadcastEnable": rng.random() < 0.5,
            "consumeMessageOrderly": rng.random() < 0.5,
            "retryQueueNums": rng.randint(0, 4),
            "retryMaxTimes": rng.randint(0, 20),
            "brokerId": rng.randint(0, 2),
            "whichBrokerWhenConsumeSlowly": rng.randint(1, 3),
            "notifyConsumerIdsChangedEnable": rng.random() < 0.5,
            "groupSysFlag": rng.choice((0, 1)),
            "consumeTimeoutMinute": rng.randint(1, 30),
        }
        attributes = self._attributes()
        changes: dict[str, str] = {}
        if rng.random() < 0.5:
            changes, attributes = self._changed(attributes)
        body: dict[str, object] = {"groupName": self._group, **config, "attributes": changes}
        config["attributes"] = attributes
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        if rng.random() < 0.3:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            body = {"groupConfigList": [body]}
        command = RemotingCommand(code=code, body=json.dumps(body).encode())
        outcome = await self._change(command, config, listed=config_text(config))
        if outcome == "ok":
            self._config = config
        return outcome != "info"

    def _attributes(self) -> dict[str, str]:
        """Return the attributes that the group has; a change that names none leaves them."""
        known = {} if self._config is None else self._config["attributes"]
        assert isinstance(known, dict)
        return dict(known)

    def _changed(self, attributes: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return a change of the attributes, and what they are after it."""
        if _ATTRIBUTE in attributes and self._rng.random() < 0.4:
            return {f"-{_ATTRIBUTE}": ""}, {}
        factor = str(self._rng.randint(0, 100))
        return {f"+{_ATTRIBUTE}": factor}, {_ATTRIBUTE: factor}

    async def _delete(self) -> bool:
        command = RemotingCommand(
            code=RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields={"groupName": self._group}
        )
        if self._rng.random() < 0.3:
            names = [self._group, f"{self._group}-unknown"]
            self._rng.shuffle(names)
            command = RemotingCommand(
                code=RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
                body=json.dumps({"groupNameList": names}).encode(),
            )
        # What nobody has configured is shown, alone, with what every group begins with.
        outcome = await self._change(command, dict(_DEFAULTS), listed=ABSENT)
        if outcome == "ok":
            self._config = None
        return outcome != "info"

    async def _change(
        self, command: RemotingCommand, config: Mapping[str, object], *, listed: str
    ) -> str:
        async def send() -> str:
            _, address = await request_leader(
                self._requests.instance,
                self._broker_group,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
            )
            return address

        values = {
            self._key("group"): config_text(config),
            self._key("listed"): listed,
            # While a member is connected a group is listed whether it is configured or not.
            self._key("connected"): config_text(config),
            self._key("pull"): "yes" if config["consumeEnable"] else "no",
        }
        return await self._record.change(
            values, send, how=str(command.code), broker_group=self._broker_group
        )

    # Questions ---------------------------------------------------------------------------------

    async def _query_connected(self, address: str) -> bool:
        """Query all groups while a member is connected there; return whether it has left."""
        if self._rng.random() >= CONNECTED_SHARE:
            return True
        client = f"{self._group}@{self._rng.getrandbits(40):x}"
        consumer = {
            "groupName": self._group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": self._queue.topic, "subString": "*"}],
        }
        body = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}
        beat = RemotingCommand(code=RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        fields = {"clientID": client, "consumerGroup": self._group}
        leave = RemotingCommand(code=RequestCode.UNREGISTER_CLIENT, ext_fields=fields)
        try:
            await self._requests.at(address, beat)
            await self._query_config(address, word="connected")
            await self._requests.at(address, leave)
        except ClientError:
            return False
        return True

    async def _query_config(self, address: str, word: str | None = None) -> None:
        """Query the group, alone or, with any word but "group", among all."""
        word = word or ("listed" if self._rng.random() < 0.5 else "group")
        among_all = word != "group"
        key = self._key(word)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        fields = {"group": self._group}
        if among_all:
            code, fields = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}
        command = RemotingCommand(code=code, ext_fields=fields)
        group = self._group

        async def send() -> tuple[Mapping[str, str], str]:
            body: Any = await self._requests.json_at(address, command)
            if among_all:
                body = body.get("subscriptionGroupTable", {}).get(group)
            return {} if not body else {key: config_text(body)}, address

        await self._record.query(
            [key],
            send,
            how={"group": "group", "listed": "among all groups"}.get(word, "while connected"),
            broker_group=self._broker_group,
        )

    async def _request_pull(self) -> None:
        key = self._key("pull")
        fields = {
            "consumerGroup": self._group,
            "topic": self._queue.topic,
            "queueId": str(self._queue.queue_id),
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": str(_WITH_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": "*",
            "expressionType": "TAG",
        }
        command = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields)

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await request_leader(
                self._requests.instance,
                self._broker_group,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
                accept=_PULLED,
            )
            return {key: "no" if answer.code == _REFUSED else "yes"}, address

        await self._record.query([key], send, how="pull", broker_group=self._broker_group)


def config_text(config: Mapping[str, object]) -> str:
    """Return the settings of a group as the history has them."""
    shown = " ".join(f"{name}={str(config.get(name)).lower()}" for name in _DEFAULTS)
    attributes = config.get("attributes")
    return f"{shown} attributes={json.dumps(attributes or {}, sort_keys=True)}"
