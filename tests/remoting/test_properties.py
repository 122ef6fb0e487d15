"""The properties block in both dialects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RecordError
from remoting.records.properties import (
    append_properties,
    decode_properties,
    encode_properties,
    find_property,
    parse_properties_text,
    properties_text,
)

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20
)
PROPERTIES = st.dictionaries(WORDS, WORDS, max_size=6)


def test_golden_block() -> None:
    properties = {"TAGS": "A", "KEYS": "k1 k2"}
    assert encode_properties(properties) == b"TAGS\x01A\x02KEYS\x01k1 k2\x02"
    assert properties_text(properties) == "TAGS\x01A\x02KEYS\x01k1 k2\x02"


def test_both_dialects_are_read() -> None:
    expected = {"TAGS": "A", "KEYS": "k"}
    assert decode_properties(b"TAGS\x01A\x02KEYS\x01k\x02") == expected
    assert decode_properties(b"TAGS\x01A\x02KEYS\x01k") == expected
    assert decode_properties(memoryview(b"TAGS\x01A\x02KEYS\x01k")) == expected


def test_what_rocketmq_drops_is_dropped() -> None:
    assert parse_properties_text("a\x02\x01b\x02c\x01\x02\x02ok\x011") == {"ok": "1"}


@given(properties=PROPERTIES)
def test_round_trip(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert decode_properties(encoded[:-1]) == properties
    assert parse_properties_text(properties_text(properties)) == properties


@given(first=PROPERTIES, second=PROPERTIES, trailing=st.booleans())
def test_appending_joins_either_dialect(
    first: dict[str, str], second: dict[str, str], trailing: bool
) -> None:
    encoded = encode_properties(first)
    joined = append_properties(encoded if trailing else encoded[:-1], second)
    assert decode_properties(joined) == {**first, **second}
    assert joined == encoded + encode_properties(second)


@given(properties=PROPERTIES, name=WORDS)
def test_one_value_is_found(properties: dict[str, str], name: str) -> None:
    encoded = encode_properties(properties)
    for wanted in [*properties, name]:
        assert find_property(encoded, wanted) == properties.get(wanted)
        assert find_property(encoded[:-1], wanted) == properties.get(wanted)


ENTRIES = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "ba"]), st.sampled_from(["", "x", "a"]))
)


@given(entries=ENTRIES, trailing=st.booleans())
def test_the_value_that_is_found_is_the_one_that_counts(
    entries: list[tuple[str, str]], trailing: bool
) -> None:
    encoded = "\x02".join(f"{name}\x01{value}" for name, value in entries).encode()
    encoded += b"\x02" * trailing
    for wanted in ("a", "b", "ba"):
        assert find_property(encoded, wanted) == decode_properties(encoded).get(wanted)


def test_a_name_inside_another_is_not_found() -> None:
    assert find_property(b"XTAGS\x01A\x02", "TAGS") is None
    assert find_property(b"A\x01TAGS\x02", "TAGS") is None
    assert find_property(b"A\x01\x02", "A") is None


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}])
def test_separators_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="separator"):
        encode_properties(properties)
    with pytest.raises(RecordError, match="separator"):
        append_properties(b"", properties)


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=30) | st.text(max_size=30))
def test_whatever_was_read_can_be_written_and_reads_the_same(text: str) -> None:
    properties = parse_properties_text(text)
    assert parse_properties_text(properties_text(properties)) == properties


def test_the_limit_is_named() -> None:
    assert len(encode_properties({"a": "b" * 32_764})) == 32_767
    with pytest.raises(RecordError, match="32768 bytes, more than 32767"):
        encode_properties({"a": "b" * 32_765})
    with pytest.raises(RecordError, match="32768 bytes, more than 32767"):
        append_properties(b"x\x01y\x02", {"a": "b" * 32_761})


def test_what_is_not_utf8_is_refused() -> None:
    with pytest.raises(RecordError, match="UTF-8"):
        decode_properties(b"a\x01\xff\x02")
    with pytest.raises(RecordError, match="UTF-8"):
        find_property(b"a\x01\xff\x02", "a")
