"""Requests that are well formed and mean harm: every code of the table, fields at their limits.

`Structures.next()` gives one whole frame. Most of its fields fit, so that it gets past the first
checks; one or two don't: numbers beyond their width, texts of 100 kB, names of system topics,
separators within properties, counts that lie, JSON with names twice, of other types and nested
deeply, bodies that inflate to far more than they are, lists and bitsets that stand for far more
(`inflation`). Pure, by seed.

What would only end the exercise is left out: settings that forbid sends, changes of members, and
the canary's topic.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from functools import cache
from typing import Any, Final

import lz4.frame
import zstandard

from broker.process.request_table import SERVED
from broker.request.needs import FREE
from broker.request.row import Field, Row
from campaigns.fuzz.inflation import inflated, inflated_fields
from remoting.errors import FrameError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from remoting.protocol.frame import encode
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.properties import PROPERTIES_SIZE_MAX

__all__ = ["NAME_SERVER_FIELDS", "Structures"]

_INFLATED_SHARE: Final = 0.06
_INFLATED_SIZE: Final = 60_000
_LEFT_OUT: Final = {RequestCode.LEDGERMQ_CHANGE_MEMBER, RequestCode.UPDATE_BROKER_CONFIG}
_TOPICS: Final = ["T0", "T1", "T2", "Golden", "%RETRY%G0", "%RETRY%G0_T0", "%DLQ%G0"]
_GROUPS: Final = ["G0", "G1", "PG", "golden-consumers", "golden-producers"]
_ODD_NAMES: Final = [
    *("", " ", "%RETRY%", "%DLQ%", "%RETRY%%RETRY%G", "TBW102", "a/b", "../x", "\x00", "é" * 60),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    *("rmq_sys_wheel_timer", "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "broker-a"),
    *("DefaultCluster", "DefaultCluster_REPLY_TOPIC", "CID_RMQ_SYS_TRANS", "x" * 127, "x" * 128),
    *("x" * 255, "x" * 40_000, "x" * 100_000, "a@b", "a b", "a#b", "a|b", "\u202e", "null"),
]
_NUMBERS: Final = [0, 0, 0, 1, 1, 2, 3, 4, 8, 12, 32, 100, 1_000]
_ODD_NUMBERS: Final = [
    *(-1, -2, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53, 2**62, 2**63 - 1),
    *(-(2**63), 2**63, 10**18, 10**40, 1_700_000_000_000),
]
_PROPERTIES: Final = [
    *("KEYS\x01a b c", "TAGS\x01red", "WAIT\x01true", "DELAY\x011", "DELAY\x0118", "DELAY\x01-1"),
    *("DELAY\x01x", "TIMER_DELAY_SEC\x011", "TIMER_DELAY_MS\x01200", "TIMER_DELAY_MS\x01-5"),
    *("TIMER_DELIVER_MS\x011", "TIMER_DELIVER_MS\x019223372036854775807", "TIMER_OUT_MS\x017"),
    *("TRAN_MSG\x01true", "PGROUP\x01PG", "REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX", "REAL_QID\x01-7"),
    *("REAL_QID\x01x", "CHECK_IMMUNITY_TIME_IN_SECONDS\x011", "POP_CK\x01a b", "1ST_POP_TIME\x01x"),
    *("RETRY_TOPIC\x01T1", "ORIGIN_MESSAGE_ID\x01x", "REPLY_TO_CLIENT\x01c0", "UNIQ_KEY\x01k"),
    *(
        "TRANSACTION_CHECK_TIMES\x01x",
        "strange\x01a\x01b",
        "\x01",
        "\x01\x01",
        "a",
        "INNER_NUM\x019",
    ),
    *("KEYS\x01" + "k " * 2_000, "x\x01" + "y" * 32_500, "é\x01" + "é" * 10_000, "DUP_INFO\x01a,b"),
    *("MULTI_TOPIC\x01a,b", "BUYER_ID\x011", "_SYS_FLAG\x01999", "MSG_REGION\x01x", "CLUSTER\x01y"),
]
# As name servers take them; their values are drawn by the same rules.
NAME_SERVER_FIELDS: Final[dict[int, str]] = {
    RequestCode.REGISTER_BROKER: "brokerName:S brokerAddr:S clusterName:S haServerAddr:S brokerId:L"
    " compressed:B bodyCrc32:I heartbeatTimeoutMillis:L enableActingMaster:B",
    RequestCode.UNREGISTER_BROKER: "brokerName:S brokerAddr:S clusterName:S brokerId:L",
    RequestCode.BROKER_HEARTBEAT: "brokerName:S brokerAddr:S clusterName:S",
    RequestCode.QUERY_DATA_VERSION: "brokerName:S brokerAddr:S clusterName:S brokerId:L",
    RequestCode.GET_ROUTEINFO_BY_TOPIC: "topic:S",
    RequestCode.GET_BROKER_CLUSTER_INFO: "",
    RequestCode.GET_BROKER_MEMBER_GROUP: "clusterName:S brokerName:S",
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: "",
    RequestCode.GET_TOPICS_BY_CLUSTER: "cluster:S",
    RequestCode.DELETE_TOPIC_IN_NAMESRV: "topic:S clusterName:S",
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: "topic:S",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "brokerName:S",
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "brokerName:S",
    RequestCode.PUT_KV_CONFIG: "namespace:S key:S value:S",
    RequestCode.GET_KV_CONFIG: "namespace:S key:S",
    RequestCode.DELETE_KV_CONFIG: "namespace:S key:S",
    RequestCode.GET_KVLIST_BY_NAMESPACE: "namespace:S",
    RequestCode.UPDATE_NAMESRV_CONFIG: "",
    RequestCode.GET_NAMESRV_CONFIG: "",
}


@cache
def _bombs() -> tuple[tuple[bytes, int], ...]:
    """(body, system flag) of 100 MB of nothing, by each way to compress."""
    zeros = bytes(100 << 20)
    return (
        (zlib.compress(zeros), 1 | 3 << 8),
        (bytes(lz4.frame.compress(zeros)), 1 | 1 << 8),
        (zstandard.ZstdCompressor().compress(zeros), 1 | 2 << 8),
    )


class Structures:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._rows = [row for row in SERVED if row.code not in _LEFT_OUT]

    def next(self, *, for_name_server: bool = False) -> bytes:
        rng = self._random
        if for_name_server:
            code = rng.choice(list(NAME_SERVER_FIELDS))
            row = Row(RequestCode(code), "", needs=FREE, fields=NAME_SERVER_FIELDS[code])
        else:
            row = self._row()
        fields = {field.name: self._value(field) for field in row.header_fields()}
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            self._spoil(fields, row)
        if rng.random() < _INFLATED_SHARE:
            fields = inflated_fields(rng, fields, _INFLATED_SIZE)
        if row.code == RequestCode.DELETE_TOPIC_IN_BROKER and fields.get("topic") == "T0":
            fields["topic"] = "T1"  # the greedy client needs one
        command = RemotingCommand(
            code=row.code,
            ext_fields=fields,
            body=self._body(row.code, fields),
            flag=FLAG_ONEWAY if rng.random() < 0.1 else 0,
            opaque=rng.choice((1, 0, -1, 2**31 - 1)),
            serialize_type=rng.choice(tuple(SerializeType)),
        )
        if rng.random() < 0.1:
            return self._odd_header(command)
        try:
            return encode(command)
        except FrameError:  # a name too long for the binary header
            command.serialize_type = SerializeType.JSON
            return encode(command)

    def _row(self) -> Row:
        """Sends and POP more often than questions: they are what is stored and applied."""
        rng = self._random
        if rng.random() < 0.5:
            wanted = {310, 320, 10, 325, 36, 37, 370, 11, 200050, 200051, 200053, 34, 41, 15}
            code = rng.choice(sorted(wanted))
            return next((row for row in self._rows if row.code == code), self._rows[0])
        return rng.choice(self._rows)

    # Fields ------------------------------------------------------------------------------------

    def _value(self, field: Field) -> str:
        rng, name = self._random, field.name
        match field.type:
            case "I" | "L":
                if name in {"h", "flag", "sysFlag", "f"}:
                    return str(
                        rng.choice((0, 0, 4, 2, 6, 1 | 1 << 8, 1 | 3 << 8, 0x10, 0x30, 0x400))
                    )
                if name in {"commitOrRollback"}:
                    return rng.choice("08") if rng.random() < 0.7 else "12"
                return str(rng.choice(_NUMBERS))
            case "B":
                return rng.choice(("true", "false", "false"))
        if name in {"topic", "b", "originTopic"}:
            return rng.choice(_TOPICS)
        if name in {"c", "defaultTopic"}:
            return "TBW102"
        if name in {"i", "properties"}:
            return self._properties()
        if "group" in name.lower() or name == "a":
            return rng.choice(_GROUPS)
        if "client" in name.lower():
            return f"c{rng.randrange(5)}"
        return rng.choice(("x", "*", "TAG", "SQL92", "a = 1", "0", "broker-a", "127.0.0.1:1"))

    def _properties(self) -> str:
        rng = self._random
        parts = rng.choices(_PROPERTIES, k=rng.choice((0, 1, 1, 2, 3, 5)))
        text = "".join(f"{part}\x02" for part in parts)
        if rng.random() < 0.1:  # just as many bytes as there may be, or a few more
            room = PROPERTIES_SIZE_MAX - len(text.encode()) - rng.randrange(0, 300)
            text += f"pad\x01{'p' * max(1, room)}\x02"
        return text if rng.random() < 0.9 else text.rstrip("\x02")

    def _spoil(self, fields: dict[str, str], row: Row) -> None:
        rng = self._random
        names = list(fields) or ["topic"]
        name = rng.choice(names)
        kinds = {field.name: field.type for field in row.header_fields()}
        match rng.randrange(5):
            case 0:
                fields.pop(name, None)
            case 1 if kinds.get(name) in {"I", "L"}:
                fields[name] = str(rng.choice(_ODD_NUMBERS))
            case 2:
                fields[rng.choice(_ODD_NAMES)] = rng.choice(_ODD_NAMES)
            case _:
                fields[name] = rng.choice(_ODD_NAMES)

    def _odd_header(self, command: RemotingCommand) -> bytes:
        """JSON that is no text of its fields: names twice, other types, nested deeply."""
        rng = self._random
        fields = json.dumps(command.ext_fields)
        inside = rng.choice(
            (
                '"topic":"T0","topic":"SCHEDULE_TOPIC_XXXX"',
                '"a":' + "[" * 3_000 + "]" * 3_000,
                '"a":' + '{"a":' * 500 + "1" + "}" * 500,
                '"topic":null,"queueId":1.5,"b":true,"e":1e400,"g":[1]',
                '"topic":"\\ud800","b":"\\u0000"',
                '"topic":' + "9" * 5_000,
            )
        )
        fields = f"{{{inside}}}" if fields == "{}" else f"{fields[:-1]},{inside}}}"
        header = f'{{"code":{int(command.code)},"opaque":1,"extFields":{fields}}}'.encode()
        size = 4 + len(header) + len(command.body)
        return struct.pack(">II", size, len(header)) + header + command.body

    # Bodies ------------------------------------------------------------------------------------

    def _body(self, code: int, fields: dict[str, str]) -> bytes:
        rng = self._random
        if rng.random() < 0.03:
            body, flag = rng.choice(_bombs())
            fields["f"] = fields["sysFlag"] = str(flag)
            return body
        match code:
            case RequestCode.SEND_BATCH_MESSAGE:
                return self._batch()
            case RequestCode.SEND_MESSAGE | RequestCode.SEND_MESSAGE_V2:
                return rng.randbytes(rng.choice((0, 1, 100, 5_000)))
            case RequestCode.REGISTER_BROKER:
                return self._registration(fields)
            case RequestCode.UPDATE_NAMESRV_CONFIG:
                return rng.choice((b"enableTopicList=true", b"kvConfigPath=/x", b"=\n=", b"\xff"))
        value = self._json_body(code)
        if value is None:
            return b""
        if rng.random() < _INFLATED_SHARE:
            return json.dumps(inflated(rng, value, _INFLATED_SIZE)).encode()
        return self._spoilt_json(value)

    def _batch(self) -> bytes:
        rng = self._random
        items = [
            BatchItem(rng.randbytes(rng.randrange(50)), self._properties().encode()[:30_000], 0)
            for _ in range(rng.choice((0, 1, 2, 5, 200)))
        ]
        if rng.random() < _INFLATED_SHARE:  # each gets the batch's key
            items = [BatchItem(b"", b"", 0)] * 4_096
        body = bytearray(encode_batch_body(items))
        if body and rng.random() < 0.4:  # lengths and counts that lie
            at = rng.randrange(len(body))
            body[at : at + 4] = struct.pack(">i", rng.choice((-1, 0, 2**31 - 1, -(2**31), 7)))
        return bytes(body)

    def _registration(self, fields: dict[str, str]) -> bytes:
        rng = self._random
        fields["bodyCrc32"] = "0"
        if rng.random() < 0.2:
            fields["compressed"] = "true"
            return rng.choice((_bombs()[0][0], zlib.compress(b"\x00\x00\x00\x02{}" + bytes(8))))
        fields["compressed"] = "false"
        topics = {
            rng.choice([*_TOPICS, *_ODD_NAMES]): {
                "readQueueNums": rng.choice([*_NUMBERS, *_ODD_NUMBERS]),
                "writeQueueNums": 4,
                "perm": rng.choice((0, 6, 7, -1)),
            }
            for _ in range(rng.choice((0, 1, 3)))
        }
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": rng.choice(_NUMBERS)}}
        return self._spoilt_json({"topicConfigSerializeWrapper": wrapper, "filterServerList": []})

    def _json_body(self, code: int) -> dict[str, Any] | None:
        rng = self._random
        group, topic, client = rng.choice(_GROUPS), rng.choice(_TOPICS), f"c{rng.randrange(5)}"
        queue = {"brokerName": "broker-a", "topic": topic, "queueId": rng.choice(_NUMBERS)}
        match code:
            case RequestCode.HEART_BEAT:
                kind, text = rng.choice((("TAG", "a||b"), ("SQL92", "a > 1"), ("SQL92", "((((")))
                subscription = {"topic": topic, "subString": text, "expressionType": kind}
                rows = [{"groupName": group, "subscriptionDataSet": [subscription]}]
                producers = [{"groupName": rng.choice(_GROUPS)}]
                return {"clientID": client, "consumerDataSet": rows, "producerDataSet": producers}
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                body = {"consumerGroup": group, "clientId": client, "mqSet": [queue] * 3}
                return {**body, "claim": rng.choice(_NUMBERS)}
            case RequestCode.BATCH_ACK_MESSAGE:
                ack = {"c": group, "t": topic, "r": rng.choice("012"), "so": 0, "q": 0, "pt": 1}
                return {"brokerName": "broker-a", "acks": [{**ack, "b": "/////w==", "rq": 0}]}
            case RequestCode.QUERY_ASSIGNMENT | RequestCode.SET_MESSAGE_REQUEST_MODE:
                body = {"topic": topic, "consumerGroup": group, "clientId": client}
                return {**body, "strategyName": "AVG", "messageModel": "CLUSTERING", "mode": "POP"}
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                return {
                    "groupName": group,
                    "retryQueueNums": 2,
                    "retryMaxTimes": rng.choice((0, 3)),
                }
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
                return {"groupConfigList": [{"groupName": group}]}
            case RequestCode.UPDATE_AND_CREATE_TOPIC_LIST:
                return {"topicConfigList": [{"topicName": topic, "readQueueNums": 2}]}
            case RequestCode.DELETE_TOPIC_IN_BROKER_LIST:
                return {"topicList": [f"{topic}-gone", rng.choice(("", "x" * 300, "other"))]}
            case RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST:
                return {"groupNameList": [f"{group}-gone"], "cleanOffset": rng.random() < 0.5}
            case RequestCode.CHECK_CLIENT_CONFIG:
                expression = rng.choice(("a = 1", "(" * 5_000, "a IN (" + "'x'," * 900 + "'x')"))
                data = {"topic": topic, "subString": expression, "expressionType": "SQL92"}
                return {"clientId": client, "group": group, "subscriptionData": data}
        return None if rng.random() < 0.7 else {"name": group}

    def _spoilt_json(self, value: dict[str, Any]) -> bytes:
        rng = self._random
        text = json.dumps(value)
        if rng.random() < 0.5:
            return text.encode()
        name = rng.choice(list(value))
        odd: object = rng.choice(
            (
                *(None, [], {}, "", -1, 2**31, 2**63, 2**70, 1e308, True, "x" * 100_000),
                *([[[[]]]], [None] * 1_000, {"a": 1}, [{}], "\x00", "%RETRY%", "é" * 1_000),
            )
        )
        match rng.randrange(4):
            case 0:
                return json.dumps({**value, name: odd}).encode()
            case 1:  # the name twice
                return f'{text[:-1]},"{name}":{json.dumps(odd)}}}'.encode()
            case 2:
                nested = '{"a":' * rng.choice((5, 2_000)) + "1"
                return f'{text[:-1]},"{name}":{nested}'.encode()
            case _:  # the first list's item, in the dialect, many times
                item = "{0:'x',{\"a\":1}:2,null:[1,],}"
                return f"{{{name}:[{','.join([item] * rng.choice((1, 3_000)))}]}}".encode()
