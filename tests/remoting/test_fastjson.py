"""The JSON dialect of Java peers."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import BodyError
from remoting.protocol import fastjson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(value=VALUES, indent=st.none() | st.just(2), ascii_only=st.booleans())
def test_standard_json_means_what_it_means_everywhere(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert fastjson.parse(text.encode("utf-8", "surrogatepass")) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1}", {"0": 1}),
        ("{ -1 : 'x' , 12:2 }", {"-1": "x", "12": 2}),
        ("{topic:'a'}", {"topic": "a"}),
        ("{'it\\'s \"so\"':'\\n\\\\'}", {'it\'s "so"': "\n\\"}),
        (
            '{{"topic":"t","brokerName":"a","queueId":0}:{"offset":3}}',
            {'{"brokerName":"a","queueId":0,"topic":"t"}': {"offset": 3}},
        ),
        ("{[1,2]:3}", {"[1,2]": 3}),
        ('{"offsetTable":{"T@G":{0:12,1:7}}}', {"offsetTable": {"T@G": {"0": 12, "1": 7}}}),
    ],
)
def test_the_dialect(text: str, value: object) -> None:
    assert fastjson.parse(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "'the end' at character 0 where a JSON value"),
        (b"{", "'the end' at character 1 where a field name"),
        (b"{0}", "'}' at character 2 where ':'"),
        (b"{0:1", "'the end' at character 4 where ',' or '}'"),
        (b"[1 2]", "'2]' at character 3 where ',' or ']'"),
        (b"[1,]", "']' at character 3 where a JSON value"),
        (b"{0:'x}", "where a string in single quotes"),
        (b"{0:'\\u12'}", "where a string in single quotes"),
        (b"1 2", "goes on at character 2"),
        (b'{"a":"\\ud800"}', "half a character"),
        (b"['\\udfff']", "half a character"),
        (b"\xff", "not UTF-8"),
        (b"[" * 66, "nested more than 64"),
        (b"{" * 66, "nested more than 64"),
        (b"9" * 10_000, "where a JSON value"),
    ],
)
def test_what_is_wrong_is_named(text: bytes, message: str) -> None:
    with pytest.raises(BodyError) as caught:
        fastjson.parse(text)
    assert message in str(caught.value)


@given(text=st.text("{}[]:,'\"\\ 01aenu", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BodyError):
        fastjson.parse(text.encode())


@given(data=st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(BodyError):
        fastjson.parse(data)


class _Shape(msgspec.Struct):
    name: str
    ids: dict[int, str] = {}
    count: int = 0


def test_decode_takes_either_dialect_numbers_as_text_and_nulls() -> None:
    assert fastjson.decode(b'{"name":"a","ids":{"0":"x"},"count":3}', _Shape) == _Shape(
        "a", {0: "x"}, 3
    )
    assert fastjson.decode(b'{"name":"a","ids":{0:"x"},"count":"3"}', _Shape) == _Shape(
        "a", {0: "x"}, 3
    )
    assert fastjson.decode(b'{"name":"a","ids":null,"count":null,"more":1}', _Shape) == _Shape("a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "body is no _Shape: Object missing required field `name`"),
        (b'{"name":1}', "Expected `str`, got `int` - at `$.name`"),
        (b'{"name":"a","ids":{"x":"y"}}', "Expected `int`, got `str` - at `key` in `$.ids`"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"name"', "where ':' should be"),
    ],
)
def test_decode_names_what_is_wrong(body: bytes, message: str) -> None:
    with pytest.raises(BodyError) as caught:
        fastjson.decode(body, _Shape)
    assert message in str(caught.value)


class _Several(msgspec.Struct):
    each: list[_Shape]


def test_nulls_within_lists_are_absent_fields() -> None:
    body = b'{"each":[{"name":"a","count":null},{"name":"b","ids":null,"count":2}]}'
    expected = _Several([_Shape("a"), _Shape("b", count=2)])
    assert fastjson.decode(body, _Several) == expected
    assert fastjson.decode_request(body, _Several) == expected


class _Named(msgspec.Struct):
    name: str = ""
    rest: list[int] = []


def test_a_strangers_body_is_read_tolerantly_only_where_that_is_quick() -> None:
    """A megabyte of the dialect takes a second, in which a broker does nothing else."""
    plain = b'{"name":"a","rest":[' + b"1," * 1_000_000 + b"1]}"
    assert len(fastjson.decode_request(plain, _Named).rest) == 1_000_001
    with_null = b'{"name":null,"rest":["1"]}'
    assert fastjson.decode_request(with_null, _Named) == _Named(rest=[1])
    assert fastjson.decode_request(b"{name:'a'}", _Named).name == "a"
    for body in (
        b'{"name":null,"rest":[' + b"1," * 1_000_000 + b"1]}",
        b"{name:'a',rest:[" + b"1," * 50_000 + b"1]}",
    ):
        assert fastjson.decode(body, _Named).rest
        with pytest.raises(BodyError, match=f"body of {len(body)} bytes"):
            fastjson.decode_request(body, _Named)
    with pytest.raises(BodyError, match="body of 300010 bytes"):
        fastjson.decode_answer(b"{" + b" " * 300_000 + b"name:'a'}", _Named)
    assert fastjson.decode_answer(b"{" + b" " * 100_000 + b"name:'a'}", _Named).name == "a"
