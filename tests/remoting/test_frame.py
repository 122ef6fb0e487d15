"""The frame codec: golden bytes, round trips, cuts, garbage, bounds."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remoting.errors import FrameError, UnencodableError
from remoting.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, SerializeType
from remoting.protocol.frame import (
    FRAME_SIZE_MAX,
    FrameDecoder,
    decode_codes,
    decode_frame,
    encode,
    encode_head,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=20)


def commands(kind: SerializeType) -> st.SearchStrategy[RemotingCommand]:
    is_json = kind is SerializeType.JSON
    return st.builds(
        RemotingCommand,
        code=INT32 if is_json else st.integers(-(2**15), 2**15 - 1),
        opaque=INT32,
        flag=INT32,
        language=st.integers(0, 13),
        version=INT32 if is_json else st.integers(-(2**15), 2**15 - 1),
        # The binary header can't tell an empty remark from none.
        remark=st.none() | (TEXT if is_json else st.text(min_size=1, max_size=20)),
        ext_fields=st.dictionaries(TEXT, TEXT, max_size=6),
        body=st.binary(max_size=200),
        serialize_type=st.just(kind),
    )


ANY_COMMAND = st.one_of([commands(kind) for kind in SerializeType])


def json_frame(header: object, body: bytes = b"") -> bytes:
    encoded = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def test_golden_json_request() -> None:
    command = RemotingCommand(code=105, opaque=7, ext_fields={"topic": "T"}, body=b"xy")
    header = (
        b'{"code":105,"language":"PYTHON","version":479,"opaque":7,"flag":0,'
        b'"extFields":{"topic":"T"}}'
    )
    assert encode(command) == b"\x00\x00\x00\x62\x00\x00\x00\x5c" + header + b"xy"


def test_golden_binary_request() -> None:
    command = RemotingCommand(
        code=310,
        opaque=7,
        flag=2,
        remark="hi",
        ext_fields={"e": "12"},
        body=b"xy",
        serialize_type=SerializeType.ROCKETMQ,
    )
    assert encode(command) == bytes.fromhex(
        "00000026"  # length 38
        "01000020"  # ROCKETMQ, header of 32 bytes
        "0136 03 01df 00000007 00000002"  # code, language, version, opaque, flag
        "00000002 6869"  # remark
        "00000009 0001 65 00000002 3132"  # extFields
        "7879"
    )


def test_a_java_request_is_read() -> None:
    frame = json_frame(
        b'{"code":105,"extFields":{"topic":"TopicTest","acceptStandardJsonOnly":"true"},"flag":0,'
        b'"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    (command,) = FrameDecoder().feed(frame)
    assert command == RemotingCommand(
        code=105,
        language=0,
        version=409,
        ext_fields={"topic": "TopicTest", "acceptStandardJsonOnly": "true"},
    )


def test_header_values_are_read_tolerantly() -> None:
    header = {
        "code": "11",
        "opaque": 3,
        "language": 9,
        "flag": None,
        "version": "401",
        "remark": 5,
        "extFields": {"a": 1, "b": True, "c": None, "d": 1.5, "e": {"x": 1}, "f": "t"},
        "unknown": [1],
    }
    command = decode_frame(json_frame(header))
    assert (command.code, command.opaque, command.flag, command.version) == (11, 3, 0, 401)
    assert command.language == 9
    assert command.remark == "5"
    assert command.ext_fields == {"a": "1", "b": "true", "d": "1.5", "e": '{"x":1}', "f": "t"}


@pytest.mark.parametrize("language", ["KLINGON", 99, None, {}])
def test_unknown_languages_are_other(language: object) -> None:
    assert decode_frame(json_frame({"code": 1, "opaque": 2, "language": language})).language == 7


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"\x00\x00\x00\x03", "frame length 3 is outside"),
        (b"\xff\xff\xff\xff", "frame length 4294967295 is outside"),
        (b"GET / HTTP/1.1\r\n", "frame length 1195725856 is outside .* speaks HTTP"),
        (b"\x16\x03\x01\x02\x00", "frame length 369295618 is outside .* speaks TLS"),
        (b"\x15\x03\x03\x00\x02", "speaks TLS"),
        (b"\x16\x04\x03\x00\x02", "outside 4..16777212$"),
        (struct.pack(">I", FRAME_SIZE_MAX - 3), "frame length 16777213 is outside"),
        (struct.pack(">II", 4, 1), "header length 1 exceeds frame length 4"),
        (struct.pack(">II", 100, 2 << 24), "serialize type 2 is neither"),
        (json_frame(b"{"), "header is not JSON"),
        (json_frame(b"\xff"), "header is not JSON"),
        (json_frame(b"[" * 100_000), "header is not JSON"),
        (json_frame([1]), "header is a JSON list"),
        (json_frame({"opaque": 1}), "header field code is no 32-bit integer"),
        (json_frame({"code": "x"}), "header field code is no 32-bit integer: 'x'"),
        (json_frame({"code": 2**31, "opaque": 1}), "header field code is no 32-bit integer"),
        (json_frame({"code": 1, "extFields": [1]}), "extFields is not an object"),
        (struct.pack(">II", 14, 1 << 24 | 10) + bytes(10), "binary header of 10 bytes"),
        (struct.pack(">II", 9 << 20, 2 << 20), "header length 2097152, more than 1048576"),
        (
            json_frame({"code": 1, "extFields": {"a": 1, "b": "x" * 300_000}}),
            "header of 3000.. bytes is not of the shape",
        ),
    ],
)
def test_what_is_no_frame_is_named(frame: bytes, text: str) -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match=text):
        decoder.feed(frame)
    assert decoder.pending_size == 0
    with pytest.raises(FrameError, match=text):  # It stays broken.
        decoder.feed(b"")


def binary_frame(remark_size: int, pairs_size: int, pairs: bytes) -> bytes:
    header = struct.pack(">hBhiii", 1, 0, 1, 1, 0, remark_size) + struct.pack(">i", pairs_size)
    header += pairs
    return struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (binary_frame(5, 0, b""), "remark length 5"),
        (binary_frame(-1, 0, b""), "remark length -1"),
        (binary_frame(0, 3, b"ab"), "extFields length 3, but 2 bytes are left"),
        (binary_frame(0, 1, b"a"), "end inside a key length"),
        (binary_frame(0, 2, b"\x00\x01"), "key length 1 exceeds"),
        (binary_frame(0, 7, b"\x00\x01k\x00\x00\x00\x09"), "'k' has value length 9"),
        (binary_frame(0, 7, b"\x00\x01k\xff\xff\xff\xff"), "'k' has value length -1"),
        (binary_frame(0, 7, b"\x00\x01\xff\x00\x00\x00\x00"), "not UTF-8"),
    ],
)
def test_broken_binary_headers_are_named(frame: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        FrameDecoder().feed(frame)


@given(command=ANY_COMMAND)
def test_round_trip(command: RemotingCommand) -> None:
    frame = encode(command)
    assert frame == encode_head(command) + command.body
    assert decode_frame(frame) == command


@given(command=ANY_COMMAND)
def test_codes_alone_are_those_of_the_whole_header(command: RemotingCommand) -> None:
    frame = encode(command)
    header = frame[8 : 8 + int.from_bytes(frame[5:8])]
    expected = (command.code, command.opaque, command.flag)
    assert decode_codes(frame[4], header) == expected
    assert decode_codes(frame[4], memoryview(header)) == expected
    with pytest.raises(FrameError):
        decode_codes(frame[4], header[:10])


def test_codes_are_read_as_tolerantly_as_the_rest() -> None:
    assert decode_codes(0, b'{"code":"11","opaque":null,"extFields":{"a":1}}') == (11, 0, 0)


def test_a_header_that_nests_too_deep_is_no_frame() -> None:
    header = b'{"code":1,"opaque":2,"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(FrameError, match="recursion"):
        decode_frame(struct.pack(">II", 4 + len(header), len(header)) + header)
    with pytest.raises(FrameError, match="recursion"):
        decode_codes(0, header)


@given(sent=st.lists(ANY_COMMAND, max_size=5), data=st.data())
def test_any_cut_of_the_stream_gives_the_same_commands(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(encode(command) for command in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    decoder = FrameDecoder()
    received: list[RemotingCommand] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert decoder.pending_size == 0


def test_one_byte_at_a_time() -> None:
    command = RemotingCommand(code=1, opaque=2, ext_fields={"k": "v"}, body=b"body")
    decoder = FrameDecoder()
    frame = encode(command)
    for at in range(len(frame) - 1):
        assert decoder.feed(frame[at : at + 1]) == []
        assert decoder.pending_size == at + 1
    assert decoder.feed(frame[-1:]) == [command]


@settings(max_examples=300)
@given(pieces=st.lists(st.binary(max_size=60), max_size=6))
def test_arbitrary_bytes_raise_frame_error_only(pieces: list[bytes]) -> None:
    decoder = FrameDecoder(frame_size_max=1000)
    fed = 0
    for piece in pieces:
        fed += len(piece)
        try:
            decoder.feed(piece)
        except FrameError:
            return
        assert decoder.pending_size <= min(fed, 1000)


@settings(max_examples=300)
@given(command=ANY_COMMAND, data=st.data())
def test_damaged_frames_raise_frame_error_only(
    command: RemotingCommand, data: st.DataObject
) -> None:
    frame = bytearray(encode(command))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FrameError):
        FrameDecoder().feed(bytes(frame))


@given(
    header=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["code", "opaque", "flag", "remark", "extFields", "language", "a"]),
                inner,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_header_is_read_or_refused(header: object) -> None:
    try:
        command = decode_frame(json_frame(header))
    except FrameError:
        return
    assert all(isinstance(value, str) for value in command.ext_fields.values())


def test_the_decoder_holds_no_more_than_one_frame() -> None:
    decoder = FrameDecoder(frame_size_max=100)
    frame = encode(RemotingCommand(code=1, opaque=1))
    assert len(frame) <= 100
    assert len(decoder.feed(frame * 1000 + frame[:50])) == 1000
    assert decoder.pending_size == 50
    with pytest.raises(FrameError):
        FrameDecoder(frame_size_max=100).feed(struct.pack(">I", 97))


def test_a_frame_may_fill_the_limit_and_not_exceed_it() -> None:
    head_size = len(encode_head(RemotingCommand(code=1)))
    fits = RemotingCommand(code=1, body=bytes(FRAME_SIZE_MAX - head_size))
    frame = encode(fits)
    assert len(frame) == FRAME_SIZE_MAX
    assert FrameDecoder().feed(frame) == [fits]
    with pytest.raises(UnencodableError, match="needs a frame of 16777217 bytes"):
        encode(RemotingCommand(code=1, body=fits.body + b"x"))


def test_a_code_too_large_for_the_binary_header_goes_out_in_json() -> None:
    command = RemotingCommand(code=60001, serialize_type=SerializeType.ROCKETMQ)
    decoded = decode_frame(encode(command))
    assert decoded.code == 60001
    assert decoded.serialize_type is SerializeType.JSON


def test_what_the_binary_header_has_no_room_for_is_refused() -> None:
    command = RemotingCommand(code=1, version=70_000, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(UnencodableError, match="does not fit"):
        encode(command)
    command = RemotingCommand(
        code=1, ext_fields={"k" * 40_000: ""}, serialize_type=SerializeType.ROCKETMQ
    )
    with pytest.raises(UnencodableError, match="name of 40000 bytes"):
        encode(command)


def test_lone_surrogates_are_refused_and_not_sent() -> None:
    for kind in SerializeType:
        command = RemotingCommand(code=1, remark="\ud800", serialize_type=kind)
        with pytest.raises(UnencodableError, match="not UTF-8"):
            encode(command)
    assert UnencodableError.definite
    assert not FrameError.definite


def test_answers_keep_opaque_and_encoding() -> None:
    request = RemotingCommand(code=11, opaque=9, serialize_type=SerializeType.ROCKETMQ)
    answer = request.response(19, "none", {"a": "b"}, b"x")
    assert answer.is_response
    assert not answer.is_oneway
    assert (answer.opaque, answer.flag, answer.code) == (9, FLAG_RESPONSE, 19)
    assert answer.serialize_type is SerializeType.ROCKETMQ
    assert RemotingCommand(code=1, flag=FLAG_ONEWAY).is_oneway


def test_decode_frame_takes_one_frame_only() -> None:
    frame = encode(RemotingCommand(code=1))
    with pytest.raises(FrameError, match="0 frames"):
        decode_frame(frame[:-1])
    with pytest.raises(FrameError, match="2 frames"):
        decode_frame(frame * 2)
