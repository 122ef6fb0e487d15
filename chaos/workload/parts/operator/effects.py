"""What settings of brokers do: each is changed at all replicas of a group, and a request that it is
about is asked behind that, and behind the change back.

Place in the data path: the part `operator` does so when all others have ended, since clients at
work would be refused; UPDATE_BROKER_CONFIG at each replica, raw requests to the leader.

Invariants: sends go to topics of its own, which nobody reads; the history has each as an operation
that may have stored it, so that its messages are nobody's surprise; none leaves a half where the
setting is not in force; what is expected is a code of RocketMQ's.

Source: RocketMQ BrokerConfig, MessageStoreConfig; SendMessageProcessor, PullMessageProcessor,
RecallMessageProcessor, HookUtils.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from chaos.cluster.layout import BrokerPlace, NameServerPlace
from chaos.recording.history import MessageRow
from chaos.workload.actor import Actor
from chaos.workload.expectations import Expectations
from chaos.workload.messages import wall_ms
from chaos.workload.parts.common.leader_requests import (
    DEFAULT_TOPIC,
    create_topic_command,
    request_leader,
)
from chaos.workload.parts.common.settings_record import SettingsRecord
from chaos.workload.parts.common.topic_admin import PERM_READ_WRITE
from chaos.workload.parts.operator.requests import OperatorRequests
from chaos.workload.parts.operator.topics import route_text
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["SettingEffects"]

TIMEOUT_MS: Final = 3_000
_PRODUCERS: Final = "operator-producers"
_PERMISSION: Final = "brokerPermission"
_MOMENT_S: Final = 1.2  # within which name servers have heard of it
_NEW_TOPIC: Final = "operator-made-by-nobody"
_PREPARED: Final = "4"  # of a send's sysFlag
_WITH_SUBSCRIPTION: Final = "4"  # of a pull's sysFlag
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_SENDS: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_PULLED: Final = frozenset({0, 19, 20, 21})
_REFUSALS: Final = frozenset({13, 16, 17})  # of a send that stored nothing
_NOT_NOW: Final = frozenset({2, 11, 14, 215})  # of a broker that does not lead, or is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """A request and the code that answers it while a setting forbids it. `usual_code` None: it
    would leave a half, or a topic."""

    code: RequestCode
    fields: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_ordered: bool = False  # about the ordered topic
    forbidden_code: str
    usual_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """A setting, its value that forbids something, and its usual one; the probes sent then."""

    setting: str
    forbids: str
    usual: str
    probes: tuple[_Probe, ...]


_EFFECTS: Final = (
    _Effect(
        setting="maxMessageSize",
        forbids="10",
        usual=str(4 << 20),
        probes=(
            _Probe(code=RequestCode.SEND_MESSAGE_V2, forbidden_code="13", usual_code="0"),
            _Probe(code=RequestCode.SEND_BATCH_MESSAGE, forbidden_code="13", usual_code="0"),
        ),
    ),
    _Effect(
        setting="rejectTransactionMessage",
        forbids="true",
        usual="false",
        probes=(
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                fields={"f": _PREPARED},
                properties={PropertyName.TRAN_MSG: "true", PropertyName.PGROUP: _PRODUCERS},
                forbidden_code="16",
            ),
        ),
    ),
    _Effect(
        setting="timerWheelEnable",
        forbids="false",
        usual="true",
        probes=tuple(
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                properties={name: value},
                forbidden_code=code,
                usual_code="0",
            )
            for name, value, code in (
                (PropertyName.TIMER_DELAY_MS, "3000", "1"),
                (PropertyName.TIMER_DELAY_SEC, "3", "1"),
                (PropertyName.DELAY, "2", "0"),  # levels need no wheel
            )
        ),
    ),
    _Effect(
        setting="timerMaxDelaySec",
        forbids="1",
        usual=str(3 * 86_400),
        probes=tuple(
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                properties={name: value},
                forbidden_code="13",
                usual_code="0",
            )
            for name, value in (
                (PropertyName.TIMER_DELAY_SEC, "5"),
                (PropertyName.TIMER_DELAY_MS, "5000"),
            )
        ),
    ),
    _Effect(
        setting="autoCreateTopicEnable",
        forbids="false",
        usual="true",
        probes=(
            _Probe(code=RequestCode.SEND_MESSAGE_V2, fields={"b": _NEW_TOPIC}, forbidden_code="17"),
            _Probe(
                code=RequestCode.SEND_BATCH_MESSAGE, fields={"b": _NEW_TOPIC}, forbidden_code="17"
            ),
        ),
    ),
    _Effect(
        setting="recallMessageEnable",
        forbids="false",
        usual="true",
        probes=(
            _Probe(
                code=RequestCode.RECALL_MESSAGE,
                fields={"recallHandle": "none"},
                forbidden_code="16",
                usual_code="604",
            ),
        ),
    ),
    _Effect(
        setting=_PERMISSION,
        forbids="2",
        usual="6",
        probes=(
            _Probe(code=RequestCode.PULL_MESSAGE, forbidden_code="16", usual_code="pulled"),
            _Probe(code=RequestCode.LITE_PULL_MESSAGE, forbidden_code="16", usual_code="pulled"),
        ),
    ),
    # Without the right to write, a broker refuses sends to ordered topics alone: their messages
    # would go on in the queue of another group.
    _Effect(
        setting=_PERMISSION,
        forbids="4",
        usual="6",
        probes=(
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                is_ordered=True,
                forbidden_code="16",
                usual_code="0",
            ),
            _Probe(
                code=RequestCode.SEND_BATCH_MESSAGE,
                is_ordered=True,
                forbidden_code="16",
                usual_code="0",
            ),
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                is_ordered=True,
                fields={"f": _PREPARED},
                properties={PropertyName.TRAN_MSG: "true", PropertyName.PGROUP: _PRODUCERS},
                forbidden_code="16",
            ),
            _Probe(
                code=RequestCode.SEND_MESSAGE_V2,
                is_ordered=True,
                properties={PropertyName.DELAY: "3"},
                forbidden_code="16",
                usual_code="0",
            ),
            _Probe(code=RequestCode.PULL_MESSAGE, forbidden_code="pulled", usual_code="pulled"),
        ),
    ),
    _Effect(
        setting="enablePropertyFilter",
        forbids="false",
        usual="true",
        probes=(
            _Probe(
                code=RequestCode.PULL_MESSAGE,
                fields={"expressionType": "SQL92", "subscription": "a = 1"},
                forbidden_code="1",
                usual_code="pulled",
            ),
        ),
    ),
)


_PLAIN: Final = _Probe(code=RequestCode.SEND_MESSAGE_V2, forbidden_code="0", usual_code="0")


class _Answers:
    def __contains__(self, code: object) -> bool:
        return code not in _NOT_NOW


class SettingEffects:
    """Changes the settings of one broker group one after the other, in a random order."""

    def __init__(
        self,
        requests: OperatorRequests,
        record: SettingsRecord,
        expectations: Expectations,
        *,
        places: Sequence[BrokerPlace],
        servers: Sequence[NameServerPlace],
        queue: MessageQueue,
        sender: Actor,
        rng: random.Random,
    ) -> None:
        self._requests = requests
        self._record = record
        self._sender = sender
        self._expectations = expectations
        self._places = places
        self._servers = servers
        self._queue = queue
        self._plain = f"operator-effects-{queue.broker_name}"
        self._ordered = f"operator-ordered-{queue.broker_name}"
        self._rng = rng

    async def show(self) -> None:
        """Change each, probe, change it back, and probe again."""
        made = {is_ordered: await self._make(is_ordered) for is_ordered in (False, True)}
        for effect in self._rng.sample(_EFFECTS, len(_EFFECTS)):
            probes = [probe for probe in effect.probes if made[probe.is_ordered]]
            began_ns = time.monotonic_ns()
            # A topic that has just taken a send has all in memory that a broker keeps for its next.
            for is_ordered in sorted({each.is_ordered for each in probes if each.code in _SENDS}):
                plain = replace(_PLAIN, is_ordered=is_ordered)
                await self._probe(effect, effect.usual, plain, "0", began_ns)
            if await self._set(effect, effect.forbids):
                for probe in probes:
                    await self._probe(effect, effect.forbids, probe, probe.forbidden_code, began_ns)
                if effect.setting == _PERMISSION:
                    await self._query_routes(f"perm={effect.forbids} ", began_ns)
            if await self._set(effect, effect.usual):
                for probe in probes:
                    if probe.usual_code is not None:
                        await self._probe(effect, effect.usual, probe, probe.usual_code, began_ns)

    async def _make(self, is_ordered: bool) -> bool:
        """Make a topic for the sends, which nobody reads; return whether it is there."""
        command = create_topic_command(
            self._topic(is_ordered), queues=1, perm=PERM_READ_WRITE, is_ordered=is_ordered
        )
        try:
            await request_leader(
                self._requests.instance,
                self._queue.broker_name,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
            )
        except ClientError:
            return False
        return True

    def _topic(self, is_ordered: bool) -> str:
        return self._ordered if is_ordered else self._plain

    async def _query_routes(self, expected: str, began_ns: int) -> None:
        """Query each name server for the topic's route, which shows what the broker permits."""
        await asyncio.sleep(_MOMENT_S)
        fields = {"topic": self._queue.topic}
        command = RemotingCommand(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields)
        for server in self._servers:
            try:
                route = await self._requests.json_at(server.address, command)
            except ClientError:
                continue
            shown = route_text(route, self._queue.broker_name)
            self._expectations.hold(
                f"permission in {server.name}'s route where the broker's is {expected.strip()}",
                expected=expected.strip(),
                answered=expected.strip() if shown and expected in f"{shown} " else shown,
                queue=self._queue,
                calm_since=began_ns,
            )

    async def _set(self, effect: _Effect, value: str) -> bool:
        """Set it at all replicas; return whether all have it."""
        body = f"{effect.setting}={value}\n".encode()
        outcomes = [await self._set_at(place, effect, value, body) for place in self._places]
        return all(outcome == "ok" for outcome in outcomes)

    async def _set_at(self, place: BrokerPlace, effect: _Effect, value: str, body: bytes) -> str:
        async def send() -> str:
            command = RemotingCommand(code=RequestCode.UPDATE_BROKER_CONFIG, body=body)
            await self._requests.at(place.address, command)
            return place.address

        return await self._record.change(
            {f"{effect.setting} {place.name}": value},
            send,
            how="update of settings",
            broker_group=self._queue.broker_name,
        )

    async def _probe(
        self, effect: _Effect, value: str, probe: _Probe, expected: str, began_ns: int
    ) -> None:
        try:
            answer = await (self._send if probe.code in _SENDS else self._request)(probe)
        except ClientError:
            return  # without an answer nothing is compared
        is_pulled = probe.code in _PULLS and answer.code in _PULLED
        self._expectations.hold(
            f"{probe.code.name.lower()} where {effect.setting} is {value}",
            expected=expected,
            answered="pulled" if is_pulled else str(answer.code),
            queue=self._queue,
            calm_since=began_ns,
        )

    async def _request(self, probe: _Probe) -> RemotingCommand:
        """Ask what stores nothing; return the answer. Raises ClientError."""
        queue = self._queue
        fields = {"topic": queue.topic, "bname": queue.broker_name}
        if probe.code in _PULLS:
            fields |= {
                "consumerGroup": "operator-readers",
                "queueId": str(queue.queue_id),
                "queueOffset": "0",
                "maxMsgNums": "1",
                "sysFlag": _WITH_SUBSCRIPTION,
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subVersion": "0",
                "subscription": "*",
                "expressionType": "TAG",
            }
        return await self._answer(
            RemotingCommand(code=probe.code, ext_fields={**fields, **probe.fields})
        )

    async def _answer(self, command: RemotingCommand) -> RemotingCommand:
        """Return what the leader answers, whatever that is. Raises ClientError."""
        answer, _ = await request_leader(
            self._requests.instance,
            self._queue.broker_name,
            lambda: command,
            timeout_ms=TIMEOUT_MS,
            accept=_Answers(),
        )
        return answer

    async def _send(self, probe: _Probe) -> RemotingCommand:
        """Send one message, or two in a batch; return the answer. Raises ClientError."""
        is_batch = probe.code == RequestCode.SEND_BATCH_MESSAGE
        # A key as of a client is for the short way of plain sends.
        keys = [self._requests.instance.next_uniq_key(wall_ms()) for _ in range(1 + is_batch)]
        texts = [f"{PropertyName.UNIQ_KEY}\x01{key}\x02" for key in keys]
        fields = {
            "a": _PRODUCERS,
            "b": self._topic(probe.is_ordered),
            "c": DEFAULT_TOPIC,
            "d": "4",
            "e": "0",
            "f": "0",
            "g": str(wall_ms()),
            "h": "0",
            "i": "".join(f"{name}\x01{value}\x02" for name, value in probe.properties.items()),
            "j": "0",
            "k": "false",
            "n": self._queue.broker_name,
        }
        body = b"more than ten bytes"
        if is_batch:
            fields["m"] = "true"
            body = encode_batch_body(
                [BatchItem(body=body, properties=text.encode()) for text in texts]
            )
        else:
            fields["i"] += texts[0]
        fields |= probe.fields
        with self._sender.operation(
            "send",
            broker_group=self._queue.broker_name,
            topic=fields["b"],
            messages=[MessageRow(value=key, uniq_key=key, topic=fields["b"]) for key in keys],
        ) as operation:
            answer = await self._answer(
                RemotingCommand(code=probe.code, ext_fields=fields, body=body)
            )
            if answer.code in _REFUSALS:
                operation.complete("fail", status=str(answer.code), error=answer.remark or "")
            else:  # the expectation has it whether it was stored, and nobody waits for it
                operation.complete("info", status=str(answer.code))
        return answer
