"""Typed headers: wire names, required fields, clear errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import HeaderError
from remoting.protocol import headers

SEND = headers.SendMessageRequestHeader(
    producer_group="g",
    topic="t",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=-1,
    sys_flag=4,
    born_timestamp_ms=1_700_000_000_000,
    flag=7,
    properties="A\x01b\x02",
    reconsume_times=0,
    unit_mode=False,
    max_reconsume_times=16,
    batch=True,
    broker_name="broker-a",
)
LETTERS = {
    "a": "g",
    "b": "t",
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "4",
    "g": "1700000000000",
    "h": "7",
    "i": "A\x01b\x02",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "true",
    "n": "broker-a",
}


def test_a_send_in_letters() -> None:
    assert SEND.to_ext_fields() == LETTERS
    assert headers.SendMessageRequestHeader.from_ext_fields(LETTERS) == SEND


def test_optional_fields_may_be_absent_and_unknown_ones_present() -> None:
    fields = {name: LETTERS[name] for name in "abcdefgh"} | {"lo": "x", "nsd": "true"}
    header = headers.SendMessageRequestHeader.from_ext_fields(fields)
    assert header.properties is None
    assert header.batch is None
    assert header.to_ext_fields() == {name: LETTERS[name] for name in "abcdefgh"}


@pytest.mark.parametrize("name", list("abcdefgh"))
def test_a_missing_field_is_named(name: str) -> None:
    fields = {key: value for key, value in LETTERS.items() if key != name}
    with pytest.raises(HeaderError, match=rf"SendMessageRequestHeader: field {name} \(\w+\) is m"):
        headers.SendMessageRequestHeader.from_ext_fields(fields)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("e", "x", r"field e \(queue_id\) is 'x': Expected `int`"),
        ("e", "", r"field e \(queue_id\) is '': Expected `int`"),
        ("e", "2147483648", r"field e \(queue_id\) is '2147483648': Expected `int` <="),
        ("g", "9223372036854775808", r"field g \(born_timestamp_ms\) is '9223372036854775808'"),
        ("g", "9" * 5000, r"field g \(born_timestamp_ms\) is '999"),
        ("m", "perhaps", r"field m \(batch\) is 'perhaps': Expected `bool"),
    ],
)
def test_a_bad_field_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(HeaderError, match=text):
        headers.SendMessageRequestHeader.from_ext_fields({**LETTERS, name: value})


def test_text_that_looks_like_something_else_stays_text() -> None:
    for topic in ("null", "true", "12", "1.5"):
        assert headers.GetRouteInfoRequestHeader.from_ext_fields({"topic": topic}).topic == topic
    fields = {**LETTERS, "i": "null"}
    assert headers.SendMessageRequestHeader.from_ext_fields(fields).properties == "null"


def test_golden_answers() -> None:
    send = headers.SendMessageResponseHeader(
        msg_id="id", queue_id=1, queue_offset=2, transaction_id="tx"
    )
    assert send.to_ext_fields() == {
        "msgId": "id",
        "queueId": "1",
        "queueOffset": "2",
        "transactionId": "tx",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    pull = headers.PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=5, min_offset=0, max_offset=9
    )
    assert pull.to_ext_fields() == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "9",
    }


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        (
            headers.PullMessageRequestHeader,
            "consumerGroup topic queueId queueOffset maxMsgNums sysFlag",
        ),
        (
            headers.EndTransactionRequestHeader,
            "producerGroup tranStateTableOffset commitLogOffset commitOrRollback",
        ),
        (headers.CheckTransactionStateRequestHeader, "tranStateTableOffset commitLogOffset"),
        (headers.ConsumerSendMsgBackRequestHeader, "offset group delayLevel"),
        (headers.QueryConsumerOffsetRequestHeader, "consumerGroup topic queueId"),
        (headers.UpdateConsumerOffsetRequestHeader, "consumerGroup topic queueId commitOffset"),
        (headers.GetMaxOffsetRequestHeader, "topic queueId"),
        (headers.GetMinOffsetRequestHeader, "topic queueId"),
        (headers.SearchOffsetRequestHeader, "topic queueId timestamp"),
        (headers.UnregisterClientRequestHeader, "clientID"),
        (
            headers.CreateTopicRequestHeader,
            "topic readQueueNums writeQueueNums perm",
        ),
        (
            headers.RegisterBrokerRequestHeader,
            "brokerName brokerAddr clusterName haServerAddr brokerId",
        ),
        (
            headers.UnregisterBrokerRequestHeader,
            "brokerName brokerAddr clusterName brokerId",
        ),
        (headers.QueryDataVersionRequestHeader, "brokerName brokerAddr clusterName brokerId"),
        (headers.KvConfigRequestHeader, "namespace key value"),
    ],
)
def test_required_fields_have_rocketmqs_names(kind: type[headers.Header], required: str) -> None:
    names = required.split()
    fields = dict.fromkeys(names, "1")
    assert kind.from_ext_fields(fields).to_ext_fields().items() >= fields.items()
    for name in names:
        with pytest.raises(HeaderError, match=f"field {name} is missing"):
            kind.from_ext_fields({key: "1" for key in names if key != name})


@given(fields=st.dictionaries(st.sampled_from(list(LETTERS)), st.text(max_size=8)))
def test_any_fields_are_read_or_refused(fields: dict[str, str]) -> None:
    try:
        header = headers.SendMessageRequestHeader.from_ext_fields({**LETTERS, **fields})
    except HeaderError:
        return
    again = headers.SendMessageRequestHeader.from_ext_fields(header.to_ext_fields())
    assert again == header
