"""One request of each code that proposes, in a situation in which it does.

`PROPOSING` names them; `BESIDE` are requests that propose something of their own accord, whose
answer doesn't speak of it; what is left proposes nothing. `tests/broker/test_only_committed.py`
holds the three against the table of requests and against requests with any fields.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.entry.payload import Command, GrantCommand, ResetCommand, UserCommand
from broker.entry.record import PendingRecord
from broker.leader.proposer import Proposal
from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.request.request import Request
from broker.transaction.records import discarded_record
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalResult, ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_record, encode_batch_body
from tests.broker.rig import START_MS, FakeConnection, Rig, pull_fields, send_fields

__all__ = [
    "BESIDE",
    "PROPOSING",
    "STORED_CODES",
    "Situation",
    "pull_after_reset",
]

Example = tuple[dict[str, str], bytes]


@dataclass
class Situation:
    """A broker that holds one of everything."""

    rig: Rig
    handlers: dict[int, Callable[[Request], None]]
    half: dict[str, str]
    half_id: str  # its message id
    given_up: str  # message id of a half among the discarded
    popped: dict[str, str]  # fields of an ACK_MESSAGE
    recall_handle: str
    stored_at: int  # position of a message

    @classmethod
    async def make(cls, directory: Path) -> Situation:
        rig = Rig(directory)
        processors = rig.make(Processors, rig.tasks)
        rig.log.change_membership = _changed(rig)  # type: ignore[attr-defined]

        async def send(key: str, **more: str) -> RemotingCommand:
            fields = send_fields(key=key, **more)
            answer = await rig.ask(processors.send.handle, 310, fields, b"x")
            assert answer.code == 0, answer.remark
            return answer

        stored = await send("A")
        half = await send("H", TRAN_MSG="true", PGROUP="PG")
        half_at = int(half.ext_fields["msgId"][16:], 16)
        kept = await send("H2", TRAN_MSG="true", PGROUP="PG")
        record = decode_record(rig.context.read_record(int(kept.ext_fields["msgId"][16:], 16)))
        copy = discarded_record(rig.replica, record)
        await propose(rig, records=[copy])
        timer = await send("R", TIMER_DELAY_MS="60000")
        pop_fields = {
            "consumerGroup": "PopG", "topic": "T", "queueId": "0", "maxMsgNums": "1",
            "invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0",
        }  # fmt: skip
        popped = await rig.ask(processors.pop.handle, RequestCode.POP_MESSAGE, pop_fields)
        assert popped.code == 0, popped.remark
        told = popped.ext_fields
        handle = f"0 {told['popTime']} {told['invisibleTime']} 0 0 broker-a 0 0"
        commands = [
            ResetCommand("ResetG", "T", [[0, 0]]),
            UserCommand("u", "p", "Normal", "enable"),
            GrantCommand("u", [["Custom", "Topic:a", ["Pub"], [], "Allow"]]),
        ]
        await propose(rig, commands=commands)
        # A member hears of the reset by its first pull.
        await rig.ask(dispatch_of(processors)[11], 11, *pull_after_reset())
        return cls(
            rig=rig,
            handlers=dispatch_of(processors),
            half={
                "producerGroup": "PG",
                "tranStateTableOffset": half.ext_fields["queueOffset"],
                "commitLogOffset": str(half_at),
                "commitOrRollback": "8",
            },
            half_id=half.ext_fields["msgId"],
            given_up=f"{rig.context.store_host_hex}{copy.position:016X}",
            popped={
                "consumerGroup": "PopG",
                "topic": "T",
                "queueId": "0",
                "offset": "0",
                "extraInfo": handle,
            },
            recall_handle=timer.ext_fields["recallHandle"],
            stored_at=int(stored.ext_fields["msgId"][16:], 16),
        )

    async def ask(
        self, code: int, outcome: ProposalStatus | None, example: Example | None = None
    ) -> list[RemotingCommand]:
        """The answers to the request of that code when its proposal ends so; None: this node led
        no more when the batch was to be proposed."""
        rig, connection = self.rig, FakeConnection()
        fields, body = example or PROPOSING[code](self)
        rig.log.auto_commit = False
        rig.context.clients.producer_seen("PG", "asker", connection, rig.now_ms)  # type: ignore[arg-type]
        rig.give(self.handlers[code], code, fields, body, connection)
        assert connection.sent == [], f"{code} proposed nothing: {connection.sent[0].remark}"
        if outcome is None:
            rig.log.leader = False
        await turns(20)
        while rig.log.open:
            entry, future = rig.log.open.pop(0)
            assert outcome is not None
            future.set_result(ProposalResult(status=outcome, index=entry.index, term=entry.term))
            await turns(20)
        return connection.sent

    async def close(self) -> None:
        await self.rig.tasks.stop()
        self.rig.queues.close()


async def propose(
    rig: Rig, *, commands: Sequence[Command] = (), records: Sequence[PendingRecord] = ()
) -> None:
    done: asyncio.Future[ProposalStatus | None] = asyncio.get_running_loop().create_future()
    rig.context.proposer.submit(
        Proposal(commands=list(commands), records=list(records), on_done=done.set_result)
    )
    assert await done is ProposalStatus.COMMITTED


def _changed(rig: Rig) -> Callable[..., object]:
    async def change(_: object) -> ProposalResult:
        """As any other entry: open until its outcome is known."""
        return await rig.log.propose(lambda _: b"")

    return change


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _long_send() -> dict[str, str]:
    """SEND_MESSAGE's names."""
    return {
        "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": str(START_MS), "flag": "0",
        "properties": "UNIQ_KEY\x01long\x02REPLY_TO_CLIENT\x01asker\x02", "reconsumeTimes": "0",
    }  # fmt: skip


_TOPIC: Final = {"topic": "N", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
_QUEUE: Final = {"topic": "T", "queueId": 0, "brokerName": "broker-a"}
_LOCK: Final = {"consumerGroup": "OrderG", "clientId": "c", "mqSet": [_QUEUE]}
_ACL: Final = {
    "policies": [{"entries": [{"resource": "Topic:*", "actions": ["Pub"], "decision": "Allow"}]}]
}


def _own_lock(at: Situation) -> Example:
    at.rig.state.queue_owners.lock("OrderG", "c", [("T", 0)])
    return {}, _json(_LOCK)


def _batch_ack(at: Situation) -> Example:
    pop_ms = int(at.popped["extraInfo"].split(" ")[1])
    ack = {"c": "PopG", "t": "T", "so": 0, "q": 0, "pt": pop_ms, "b": "AQ==", "r": "0", "rq": 0}
    return {}, _json({"acks": [ack]})


def _pop(_: Situation) -> Example:
    return {
        "consumerGroup": "G2", "topic": "T", "queueId": "0", "maxMsgNums": "1", "bornTime": "0",
        "invisibleTime": "60000", "pollTime": "0", "initMode": "0",
    }, b""  # fmt: skip


def pull_after_reset() -> Example:
    """From where a reset has sent the group, which clears it."""
    return pull_fields(offset=0) | {"consumerGroup": "ResetG"}, b""


def _batch() -> bytes:
    return encode_batch_body([(b"a", b"UNIQ_KEY\x01b1\x02", 0), (b"b", b"UNIQ_KEY\x01b2\x02", 0)])


PROPOSING: Final[dict[int, Callable[[Situation], Example]]] = {
    RequestCode.SEND_MESSAGE: lambda _: (_long_send(), b"x"),
    RequestCode.SEND_MESSAGE_V2: lambda _: (send_fields(key="new", topic="New"), b"x"),
    RequestCode.SEND_BATCH_MESSAGE: lambda _: (send_fields(key=None), _batch()),
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda at: (
        {"offset": str(at.stored_at), "group": "G", "delayLevel": "1"},
        b"",
    ),
    RequestCode.END_TRANSACTION: lambda at: (at.half, b""),
    RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: (
        {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"},
        b"",
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC: lambda _: (_TOPIC, b""),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda _: (
        {},
        _json({"topicConfigList": [{"topicName": "N"}]}),
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: lambda _: ({"topic": "T"}, b""),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda _: ({}, _json({"groupName": "G"})),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda _: (
        {},
        _json({"groupConfigList": [{"groupName": "G"}]}),
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: lambda _: ({"groupName": "G"}, b""),
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: lambda _: ({}, _json({"topicList": ["T"]})),
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: lambda _: ({}, _json({"groupNameList": ["G"]})),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda _: (
        {"topic": "T", "group": "ResetG", "timestamp": "0", "queueId": "0", "offset": "0"},
        b"",
    ),
    RequestCode.CLONE_GROUP_OFFSET: lambda _: (
        {"srcGroup": "ResetG", "destGroup": "G3", "topic": "T", "offline": "true"},
        b"",
    ),
    RequestCode.LOCK_BATCH_MQ: lambda _: ({}, _json(_LOCK)),
    RequestCode.UNLOCK_BATCH_MQ: _own_lock,
    RequestCode.RECALL_MESSAGE: lambda at: (
        {"producerGroup": "PG", "topic": "T", "recallHandle": at.recall_handle},
        b"",
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: lambda at: ({"msgId": at.given_up}, b""),
    RequestCode.LEDGERMQ_DISCARD_HALF: lambda at: ({"msgId": at.half_id}, b""),
    RequestCode.SET_MESSAGE_REQUEST_MODE: lambda _: (
        {},
        _json({"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 1}),
    ),
    RequestCode.POP_MESSAGE: _pop,
    RequestCode.ACK_MESSAGE: lambda at: (at.popped, b""),
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: lambda at: (at.popped | {"invisibleTime": "9"}, b""),
    RequestCode.AUTH_CREATE_USER: lambda _: ({"username": "v"}, _json({"password": "p"})),
    RequestCode.AUTH_UPDATE_USER: lambda _: ({"username": "u"}, _json({"password": "q"})),
    RequestCode.AUTH_DELETE_USER: lambda _: ({"username": "u"}, b""),
    RequestCode.AUTH_CREATE_ACL: lambda _: ({"subject": "User:u"}, _json(_ACL)),
    RequestCode.AUTH_UPDATE_ACL: lambda _: ({"subject": "User:u"}, _json(_ACL)),
    RequestCode.AUTH_DELETE_ACL: lambda _: ({"subject": "User:u"}, b""),
    RequestCode.LEDGERMQ_CHANGE_MEMBER: lambda _: ({"change": "remove", "node": "n1"}, b""),
}
BESIDE: Final = {
    RequestCode.PULL_MESSAGE: "the offset that rides on it",
    RequestCode.LITE_PULL_MESSAGE: "likewise",
    RequestCode.HEART_BEAT: "the topic of the group's retries",
    RequestCode.SEND_REPLY_MESSAGE: "sent is what its asker has taken, whatever became of storing",
    RequestCode.SEND_REPLY_MESSAGE_V2: "likewise",
}
STORED_CODES: Final = {
    ProposalStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    ProposalStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ProposalStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
