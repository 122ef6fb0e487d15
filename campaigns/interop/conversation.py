"""One conversation with a broker, held with RocketMQ once and with ours in every test run.

`hold` requests of a broker nearly everything that clients and tools do, in an order in which later
requests build on earlier answers; each step has a name. `python -m campaigns.interop.conversation`
holds it with a real RocketMQ and writes what was answered to testdata, a line per step: its name,
and the frame of the answer in hexadecimal. `test_rocketmq_answers.py` holds it with ledgermq and
compares (no Java is needed for that).
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode as Code
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import decode_frame, encode
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.message_id import parse_offset_msg_id

__all__ = ["RECORDED", "Conversation", "recorded_answers"]

RECORDED = Path(__file__).parent / "testdata" / "rocketmq-5.3.3-answers.txt"
_TOPIC = "Talk"
_GROUP = "talkers"
_CLIENT = "127.0.0.1@talk"
_TIMEOUT_MS = 10_000


def recorded_answers() -> dict[str, RemotingCommand]:
    lines = RECORDED.read_text(encoding="ascii").splitlines()
    pairs = [line.split() for line in lines]
    return {name.replace("_", " "): decode_frame(bytes.fromhex(text)) for name, text in pairs}


class Conversation:
    """Sends requests to `address`; `answers` has every answer by its step's name."""

    def __init__(self, rpc: RemotingClient, address: str) -> None:
        self._rpc = rpc
        self._address = address
        self.answers: dict[str, RemotingCommand] = {}

    async def _request(
        self, name: str, code: Code | int, fields: Mapping[str, object], body: bytes = b""
    ) -> RemotingCommand:
        texts = {key: str(value) for key, value in fields.items()}
        command = RemotingCommand(code=int(code), ext_fields=texts, body=body)
        answer = await self._rpc.request(self._address, command, _TIMEOUT_MS)
        assert name not in self.answers, name
        self.answers[name] = answer
        return answer

    async def hold(self) -> None:
        await self._topics_and_groups()
        await self._sends()
        await self._membership()
        await self._reads()
        await self._offsets()
        await self._queries()
        await self._statistics()
        await self._pop()
        await self._corners()
        await self._administration()

    async def _topics_and_groups(self) -> None:
        topic = {
            "topic": _TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        await self._request("create topic", Code.UPDATE_AND_CREATE_TOPIC, topic)
        illegal = {**topic, "topic": "bad topic!"}
        await self._request("create illegal topic", Code.UPDATE_AND_CREATE_TOPIC, illegal)
        system = {**topic, "topic": "SCHEDULE_TOPIC_XXXX"}
        await self._request("create system topic", Code.UPDATE_AND_CREATE_TOPIC, system)
        await self._request("topic config", Code.GET_TOPIC_CONFIG, {"topic": _TOPIC})
        await self._request("unknown topic's config", Code.GET_TOPIC_CONFIG, {"topic": "Nope"})
        group = json.dumps({"groupName": _GROUP, "consumeEnable": True}).encode()
        await self._request("create group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        await self._request("group config", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": _GROUP})
        disabled = json.dumps({"groupName": "disabled", "consumeEnable": False}).encode()
        await self._request(
            "create disabled", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, disabled
        )

    def _send_fields(self, key: str, queue: int = 0, **properties: str) -> dict[str, object]:
        all_properties = {"UNIQ_KEY": key, "KEYS": "asked", "TAGS": "TagA", **properties}
        text = "".join(f"{name}\x01{value}\x02" for name, value in all_properties.items())
        return {
            "a": "speakers",
            "b": _TOPIC,
            "c": "TBW102",
            "d": 4,
            "e": queue,
            "f": 0,
            "g": int(time.time() * 1000),
            "h": 0,
            "i": text,
            "j": 0,
            "k": "false",
            "m": "false",
        }

    async def _sends(self) -> None:
        send = Code.SEND_MESSAGE_V2
        first = await self._request("send", send, self._send_fields("A" * 31 + "1"), b"hello")
        self._position = parse_offset_msg_id(first.ext_fields["msgId"])[-1]
        self._offset_id = first.ext_fields["msgId"]
        await self._request("send again", send, self._send_fields("A" * 31 + "2"), b"world")
        zipped = zlib.compress(b"x" * 5_000)
        compressed = {**self._send_fields("A" * 31 + "3"), "f": 1}
        await self._request("send compressed", send, compressed, zipped)
        batch = encode_batch_body(
            BatchItem(flag=0, body=b"b", properties=f"UNIQ_KEY\x01{key * 32}\x02".encode())
            for key in "BCD"
        )
        fields = {**self._send_fields("E" * 32, 1), "i": "", "m": "true"}
        await self._request("send batch", Code.SEND_BATCH_MESSAGE, fields, batch)
        await self._request("send to no queue", send, self._send_fields("F" * 32, 99), b"x")
        await self._request(
            "send nothing there", send, {**self._send_fields("F" * 32), "b": "N!"}, b"x"
        )
        large = bytes((4 << 20) + 1)
        await self._request("send too large", send, self._send_fields("F" * 32), large)
        to_half = {**self._send_fields("F" * 32), "b": "RMQ_SYS_TRANS_HALF_TOPIC"}
        await self._request("send to a system topic", send, to_half, b"x")
        delayed = self._send_fields("A" * 31 + "4", DELAY="18")
        await self._request("send delayed", send, delayed, b"later")
        half = self._send_fields("A" * 31 + "5", TRAN_MSG="true", PGROUP="speakers")
        await self._request("send half", send, {**half, "f": 4}, b"half")
        too_far = self._send_fields("A" * 31 + "6", TIMER_DELAY_SEC="400000")
        await self._request("send too far ahead", send, too_far, b"x")

    async def _membership(self) -> None:
        subscription = {
            "topic": _TOPIC,
            "subString": "*",
            "tagsSet": [],
            "codeSet": [],
            "subVersion": 1,
            "expressionType": "TAG",
            "classFilterMode": False,
        }
        consumer = {
            "groupName": _GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [subscription],
        }
        heartbeat = {
            "clientID": _CLIENT,
            "producerDataSet": [{"groupName": "speakers"}],
            "consumerDataSet": [consumer],
        }
        await self._request("heartbeat", Code.HEART_BEAT, {}, json.dumps(heartbeat).encode())
        members = {"consumerGroup": _GROUP}
        await self._request("members", Code.GET_CONSUMER_LIST_BY_GROUP, members)
        nobody = {"consumerGroup": "nobody"}
        await self._request("no members", Code.GET_CONSUMER_LIST_BY_GROUP, nobody)
        await self._request("connections", Code.GET_CONSUMER_CONNECTION_LIST, members)
        await self._request("no connections", Code.GET_CONSUMER_CONNECTION_LIST, nobody)
        producers = {"producerGroup": "speakers"}
        await self._request("producers", Code.GET_PRODUCER_CONNECTION_LIST, producers)
        queue = {"topic": _TOPIC, "brokerName": "broker-a", "queueId": 0}
        lock = {"consumerGroup": _GROUP, "clientId": _CLIENT, "mqSet": [queue]}
        await self._request("lock", Code.LOCK_BATCH_MQ, {}, json.dumps(lock).encode())
        other = {**lock, "clientId": "127.0.0.1@other"}
        await self._request(
            "lock what is locked", Code.LOCK_BATCH_MQ, {}, json.dumps(other).encode()
        )
        await self._request("unlock", Code.UNLOCK_BATCH_MQ, {}, json.dumps(lock).encode())
        sql = {**subscription, "expressionType": "SQL92", "subString": "a > 3"}
        check = {"clientId": _CLIENT, "group": _GROUP, "subscriptionData": sql}
        await self._request("check SQL", Code.CHECK_CLIENT_CONFIG, {}, json.dumps(check).encode())
        wrong = {**check, "subscriptionData": {**sql, "subString": "a > > 3"}}
        await self._request(
            "check no SQL", Code.CHECK_CLIENT_CONFIG, {}, json.dumps(wrong).encode()
        )

    async def _reads(self) -> None:
        def pull(offset: int, **changed: object) -> dict[str, object]:
            return {
                "consumerGroup": _GROUP,
                "topic": _TOPIC,
                "queueId": 0,
                "queueOffset": offset,
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subscription": "*",
                "subVersion": 1,
                "expressionType": "TAG",
                **changed,
            }

        code = Code.PULL_MESSAGE
        await self._request("pull", code, pull(0))
        await self._request("pull a batch", code, pull(0, queueId=1))
        await self._request("lite pull", Code.LITE_PULL_MESSAGE, pull(1, sysFlag=0x14))
        await self._request("pull at the end", code, pull(3))
        await self._request("pull beyond the end", code, pull(4))
        await self._request("pull far beyond", code, pull(1_000))
        await self._request("pull another tag", code, pull(0, subscription="TagZ"))
        await self._request(
            "pull by SQL", code, pull(0, subscription="TAGS = 'TagA'", expressionType="SQL92")
        )
        await self._request("pull no queue", code, pull(0, queueId=9))
        await self._request("pull no topic", code, pull(0, topic="Nope"))
        await self._request("pull disabled", code, pull(0, consumerGroup="disabled"))
        await self._request("pull no expression", code, pull(0, subscription="||"))

    async def _offsets(self) -> None:
        queue = {"topic": _TOPIC, "queueId": 0}
        unknown = {"topic": "Nope", "queueId": 0}
        await self._request("end", Code.GET_MAX_OFFSET, queue)
        await self._request("end of nothing", Code.GET_MAX_OFFSET, unknown)
        await self._request("beginning", Code.GET_MIN_OFFSET, queue)
        await self._request("earliest time", Code.GET_EARLIEST_MSG_STORETIME, queue)
        await self._request("earliest of nothing", Code.GET_EARLIEST_MSG_STORETIME, unknown)
        for what, at, boundary in (
            ("the beginning", 1, "LOWER"),
            ("the end", 1 << 42, "LOWER"),
            ("upper end", 1 << 42, "UPPER"),
        ):
            fields = {**queue, "timestamp": at, "boundaryType": boundary}
            await self._request(f"search {what}", Code.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        group = {"consumerGroup": _GROUP, **queue}
        await self._request("no offset yet", Code.QUERY_CONSUMER_OFFSET, group)
        without_zero = {**group, "setZeroIfNotFound": "false"}
        await self._request("no offset, no zero", Code.QUERY_CONSUMER_OFFSET, without_zero)
        await self._request("commit", Code.UPDATE_CONSUMER_OFFSET, {**group, "commitOffset": 2})
        await self._request("offset", Code.QUERY_CONSUMER_OFFSET, group)

    async def _queries(self) -> None:
        place = {"offset": self._position}
        await self._request("view", Code.VIEW_MESSAGE_BY_ID, place)
        await self._request("view nothing", Code.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40})
        query = {
            "topic": _TOPIC,
            "key": "asked",
            "maxNum": 32,
            "beginTimestamp": 0,
            "endTimestamp": 1 << 45,
        }
        async with asyncio.timeout(10):
            while True:  # RocketMQ makes its index behind the sends
                answer = await self._rpc.request(
                    self._address,
                    RemotingCommand(
                        code=Code.QUERY_MESSAGE,
                        ext_fields={name: str(value) for name, value in query.items()},
                    ),
                    _TIMEOUT_MS,
                )
                if answer.code == 0:
                    break
                await asyncio.sleep(0.05)
        await self._request("query", Code.QUERY_MESSAGE, query)
        unique = {**query, "key": "A" * 31 + "2", "_UNIQUE_KEY_QUERY": "true"}
        await self._request("query unique", Code.QUERY_MESSAGE, unique)
        await self._request("query nothing", Code.QUERY_MESSAGE, {**query, "key": "unasked"})
        units = {"topic": _TOPIC, "queueId": 0, "index": 0, "count": 2}
        await self._request("consume queue", Code.QUERY_CONSUME_QUEUE, units)

    async def _statistics(self) -> None:
        topic = {"topic": _TOPIC}
        group = {"consumerGroup": _GROUP}
        await self._request("topic stats", Code.GET_TOPIC_STATS_INFO, topic)
        await self._request("stats of nothing", Code.GET_TOPIC_STATS_INFO, {"topic": "Nope"})
        await self._request("consume stats", Code.GET_CONSUME_STATS, {**group, **topic})
        await self._request("who consumes", Code.QUERY_TOPIC_CONSUME_BY_WHO, topic)
        await self._request("time span", Code.QUERY_CONSUME_TIME_SPAN, {**topic, "group": _GROUP})
        await self._request("topics by consumer", Code.QUERY_TOPICS_BY_CONSUMER, {"group": _GROUP})
        subscription = {"group": _GROUP, **topic}
        await self._request("subscription", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, subscription)
        await self._request(
            "broker's consume stats", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}
        )
        await self._request("all producers", Code.GET_ALL_PRODUCER_INFO, {})
        stats = {"statsName": "NOPE", "statsKey": "Nope"}
        await self._request("no such statistics", Code.VIEW_BROKER_STATS_DATA, stats)
        await self._request("runtime", Code.GET_BROKER_RUNTIME_INFO, {})

    async def _pop(self) -> None:
        mode = {"topic": _TOPIC, "consumerGroup": "poppers", "mode": "POP", "popShareQueueNum": 0}
        body = json.dumps(mode).encode()
        await self._request("pop mode", Code.SET_MESSAGE_REQUEST_MODE, {}, body)
        assignment = {
            "topic": _TOPIC,
            "consumerGroup": _GROUP,
            "clientId": _CLIENT,
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
        }
        body = json.dumps(assignment).encode()
        await self._request("assignment", Code.QUERY_ASSIGNMENT, {}, body)
        pop = {
            "consumerGroup": _GROUP,
            "topic": _TOPIC,
            "queueId": 1,
            "maxMsgNums": 1,
            "invisibleTime": 30_000,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": "false",
        }
        popped = await self._request("pop", 200_050, pop)
        fields = popped.ext_fields
        _, _, start = fields["startOffsetInfo"].split(";")[0].split(" ")
        extra = (
            f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0"
            f" broker-a 1 {start}"
        )
        acknowledged = {
            "consumerGroup": _GROUP,
            "topic": _TOPIC,
            "queueId": 1,
            "extraInfo": extra,
            "offset": start,
        }
        change = {**acknowledged, "invisibleTime": 60_000}
        await self._request("change invisible time", 200_053, change)
        await self._request("ack of nothing", 200_051, {**acknowledged, "offset": 1_000})

    async def _corners(self) -> None:
        """Where what was sent is stored otherwise, or not at all."""
        topic: dict[str, str | int] = {
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicSysFlag": 0,
        }
        topic |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        for name in ("DefaultCluster", "broker-a"):
            changed = {**topic, "topic": name}
            await self._request(f"change topic {name}", Code.UPDATE_AND_CREATE_TOPIC, changed)
            await self._request(f"topic {name}", Code.GET_TOPIC_CONFIG, {"topic": name})
            await self._request(
                f"delete topic {name}", Code.DELETE_TOPIC_IN_BROKER, {"topic": name}
            )
        send = Code.SEND_MESSAGE_V2

        def named(name: str, key: str, **letters: object) -> dict[str, object]:
            return {**self._send_fields(key * 32), "b": name, **letters}

        await self._request("send in unit mode", send, named("Unit", "G", k="true"), b"x")
        await self._request("a unit's topic", Code.GET_TOPIC_CONFIG, {"topic": "Unit"})
        batch = encode_batch_body(
            BatchItem(flag=0, body=b"b", properties=f"UNIQ_KEY\x01{key * 32}\x02".encode())
            for key in "HI"
        )
        code = Code.SEND_BATCH_MESSAGE
        plain = named("Corner", "J", m="true")
        await self._request("send a batch by its flag", send, plain, batch)
        delayed = {**plain, "i": f"{plain['i']}DELAY\x013\x02"}
        await self._request("send a delayed batch", code, delayed, batch)
        await self._request("send a batch of halves", code, {**plain, "f": 4}, batch)
        to_retry = {**plain, "b": f"%RETRY%{_GROUP}"}
        await self._request("send a batch to be retried", code, to_retry, batch)
        await self._request("send an inner batch", send, named("Corner", "K", f=0x80), b"x")
        pull = {"consumerGroup": "corner", "topic": "Corner", "queueId": 0, "queueOffset": 0}
        pull |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
        pull |= {"subscription": "*", "subVersion": 0, "expressionType": "TAG"}
        await self._request("pull what was a batch", Code.PULL_MESSAGE, pull)
        half = named("Corner", "L", f=4)
        half["i"] = f"{half['i']}TRAN_MSG\x01true\x02PGROUP\x01speakers\x02"
        stored = (await self._request("send a half", send, half, b"half")).ext_fields
        end = {
            "producerGroup": "others",
            "tranStateTableOffset": stored["queueOffset"],
            "commitLogOffset": parse_offset_msg_id(stored["msgId"])[-1],
            "commitOrRollback": 8,
            "msgId": "L" * 32,
            "transactionId": "L" * 32,
        }
        await self._request("end another group's", Code.END_TRANSACTION, end)
        own = {**end, "producerGroup": "speakers"}
        await self._request("end it", Code.END_TRANSACTION, own)
        back = {"offset": self._position, "group": _GROUP, "delayLevel": -1}
        back |= {"originTopic": _TOPIC}
        await self._request("send back", Code.CONSUMER_SEND_MSG_BACK, back)
        await self._request(
            "send back nothing", Code.CONSUMER_SEND_MSG_BACK, {**back, "offset": 1 << 40}
        )
        dead = {"topic": f"%DLQ%{_GROUP}"}
        await self._request("dead letters' topic", Code.GET_TOPIC_CONFIG, dead)
        peek = {"consumerGroup": "disabled", "topic": _TOPIC, "queueId": 0, "maxMsgNums": 1}
        await self._request("peek disabled", Code.PEEK_MESSAGE, peek)
        notify = {**peek, "pollTime": 0, "bornTime": 0}
        await self._request("notification disabled", Code.NOTIFICATION, notify)
        await self._request("polling of nothing", Code.POLLING_INFO, {**peek, "topic": "Nope"})
        await self._request("polling of no queue", Code.POLLING_INFO, {**peek, "queueId": 9})

    async def _administration(self) -> None:
        await self._request("broker config", Code.GET_BROKER_CONFIG, {})
        update = b"fileReservedTime=70\n"
        await self._request("update broker config", Code.UPDATE_BROKER_CONFIG, {}, update)
        await self._request("all topics", Code.GET_ALL_TOPIC_CONFIG, {})
        await self._request("all groups", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        await self._request("all offsets", Code.GET_ALL_CONSUMER_OFFSET, {})
        await self._request("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {})
        await self._request("clean queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE, {})
        await self._request("clean topics", Code.CLEAN_UNUSED_TOPIC, {})
        reset = {"topic": _TOPIC, "group": _GROUP, "timestamp": 0, "isForce": "true"}
        await self._request("reset", Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        leave = {"clientID": _CLIENT, "producerGroup": "speakers", "consumerGroup": _GROUP}
        await self._request("leave", Code.UNREGISTER_CLIENT, leave)
        gone = {"groupName": _GROUP, "cleanOffset": "true"}
        await self._request("delete group", Code.DELETE_SUBSCRIPTIONGROUP, gone)
        await self._request("delete topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": _TOPIC})
        await self._request("deleted topic's config", Code.GET_TOPIC_CONFIG, {"topic": _TOPIC})
        await self._request("unknown request", 9_999, {})


async def _record(address: str) -> None:
    rpc = RemotingClient()
    try:
        conversation = Conversation(rpc, address)
        await conversation.hold()
    finally:
        await rpc.close()
    lines = [
        f"{name.replace(' ', '_')} {encode(answer).hex()}"
        for name, answer in conversation.answers.items()
    ]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="ascii")


def main() -> int:
    """Only this needs Java: a RocketMQ that answers."""
    from campaigns.interop.rocketmq import Rocketmq
    from campaigns.interop.targets import started
    from campaigns.interop.toolchain import Toolchain

    root = Path(tempfile.mkdtemp(prefix="answers-")) / "rocketmq"
    with started("rocketmq", root, Toolchain.look_up()) as target:
        assert isinstance(target, Rocketmq)
        asyncio.run(_record(target.broker))
    return 0


if __name__ == "__main__":
    sys.exit(main())
