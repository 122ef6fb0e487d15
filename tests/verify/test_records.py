"""Records of delayed messages as the verifier reads them from a log."""

from __future__ import annotations

import pytest

from remoting.message import MessageRecord, encode_properties, encode_record, tags_code
from remoting.sys_flag import TRANSACTION_COMMIT
from verify.sources.records import _record


@pytest.mark.parametrize(
    ("topic", "properties", "prepared", "wanted"),
    [
        ("T", {"TAGS": "red"}, 77, ("final", tags_code("red"))),
        ("T", {"TAGS": "red"}, 0, ("message", tags_code("red"))),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "3"}, 77, ("final", 11_000)),
        ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "4999"}, 77, ("final", 5_000)),
        ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "4999"}, 0, ("message", 5_000)),
    ],
)
def test_a_delayed_final_message_is_final_once(topic, properties, prepared, wanted):
    record = MessageRecord(
        topic=topic,
        queue_id=2 if topic == "SCHEDULE_TOPIC_XXXX" else 0,
        body=b"x",
        properties=encode_properties(properties),
        sys_flag=TRANSACTION_COMMIT,
        store_timestamp_ms=1_000,
        prepared_transaction_offset=prepared,
    )
    read = _record(memoryview(encode_record(record)), 0)
    assert (read.kind, read.tag_hash) == wanted
