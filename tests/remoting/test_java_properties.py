"""Java's properties text: what it means, and that what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.protocol.java_properties import (
    JavaPropertiesError,
    parse_java_properties,
    properties_lines,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b\nc : d\ne f\n", {"a": "b", "c": "d", "e": "f"}),
        ("# a=b\n  ! c=d\n\n  x = y", {"x": "y"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a=1\r\na=2\r\n", {"a": "2"}),
        ("a = one \\\n   two", {"a": "one two"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("path=/a/b;c d ", {"path": "/a/b;c d "}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_it_means_what_it_means_in_java(text, pairs):
    assert parse_java_properties(text) == pairs


def test_what_is_none_is_refused():
    with pytest.raises(JavaPropertiesError, match="line 2"):
        parse_java_properties("a=b\nc=\\u12")
    with pytest.raises(JavaPropertiesError, match="more than"):
        parse_java_properties("x" * (1 << 21))
    with pytest.raises(JavaPropertiesError, match="entries"):
        parse_java_properties("\n".join(f"k{n}=1" for n in range(10_001)))


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=8))
def test_what_is_written_is_read_back(pairs):
    assert parse_java_properties(properties_lines(pairs)) == pairs


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parse_java_properties(text)
    except JavaPropertiesError:
        return
