"""Any request of the table, drawn: fields that fit, values that hurt, bodies of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.process.processors import Processors
from broker.process.request_table import SERVED, dispatch_of
from broker.request.request import Request
from remoting.protocol.codes import RequestCode
from tests.broker.rig import Rig, pull_fields, send_fields

VALUES = [
    *("", "0", "1", "-1", "4", "8", "12", " 7 ", "٣", "1e3", "9" * 30),
    *("2147483648", "-2147483649", "9223372036854775807", "true", "*", "a||b", "||", "UPPER"),
    *("T", "G", "PG", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"),
    *("User:T", "User:", "Topic:*"),
    *("%RETRY%G", "%RETRY%", "%DLQ%G", "é" * 200, "\x00", "a\x01b\x02", "+dedupe=false"),
    *("UNIQ_KEY\x01k\x02", "DELAY\x013\x02", "DELAY\x01x\x02"),
    "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "REAL_TOPIC\x01x\x02REAL_QID\x01-5\x02TRAN_MSG\x01true\x02",
]
NAMES = [
    *"abcdefghijklmn",
    *("producerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"),
    *("suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "consumerGroup"),
    *("offset", "group", "delayLevel", "originMsgId", "maxReconsumeTimes", "clientID"),
    *("tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId", "timestamp"),
    *("fromTransactionCheck", "boundaryType", "readQueueNums", "writeQueueNums", "perm"),
    *("topicSysFlag", "topicFilterType", "attributes", "order", "defaultTopic", "properties"),
    *("defaultTopicQueueNums", "bornTimestamp", "flag", "reconsumeTimes", "batch"),
    *sorted({field.name for row in SERVED for field in row.header_fields()}),
]
BODIES = [
    *(b"", b"x", b"{}", b"[1]", b"null", b'{"a":' * 5_000, b"[" * 5_000, bytes(200)),
    b"\0\0\0\x22" + bytes(30),
    b'{"groupName":"G"}',
    b'{"groupConfigList":[{"groupName":"G"},{"groupName":"H"}]}',
    b'{"topicConfigList":[{"topicName":"T","attributes":{"+dedupe":"false"}}]}',
    b'{"password":"\\ud800"}',
    b'{"password":"p","userType":"Super"}',
    b'{"policies":[{"entries":[{"resource":"Topic:\\ud800","actions":["Pub"],"decision":"Deny"}]}]}',
    b"maxMessageSize=100\nbrokerPermission=4\n",
    b"brokerPermission=6",
    b'{"consumerGroup":"G","clientId":"c","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}',
    b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":'
    b'[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}',
]
Handler = Callable[[Request], None]


def handlers(rig: Rig) -> list[tuple[int, Handler]]:
    """All that the table serves, but what only a real group has: members and their changes."""
    processors = rig.make(Processors, rig.tasks)
    own = {RequestCode.LEDGERMQ_MEMBERS, RequestCode.LEDGERMQ_CHANGE_MEMBER}
    own |= {RequestCode.LEDGERMQ_TRANSFER}
    table = dispatch_of(processors)
    return [(code, handler) for code, handler in sorted(table.items()) if code not in own]


def fields_for(code: int, rng: random.Random) -> dict[str, str]:
    """Some that fit, most of the time, and a few that don't."""
    fields: dict[str, str] = {}
    if code in {310, 320} and rng.random() < 0.8:
        key = rng.choice(["k1", "k2", None])
        fields = send_fields(key=key, queue=rng.choice([0, 1, -1]))
    elif code == 11 and rng.random() < 0.8:
        fields = pull_fields(offset=rng.choice([0, 1, 5, -1]))
    elif code == 37 and rng.random() < 0.8:
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": str(rng.randrange(3)),
            "commitLogOffset": str(rng.randrange(2_000)),
            "commitOrRollback": rng.choice(["8", "12"]),
        }
    names = [*fields, *NAMES[:3]] if fields else NAMES
    for _ in range(rng.randrange(4) if fields else rng.randrange(3, 30)):
        fields[rng.choice(names)] = rng.choice(VALUES)
    return fields
