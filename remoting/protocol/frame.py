"""The frame codec: RemotingCommand to bytes and a byte stream to RemotingCommands. No IO.

Place in the data path: `remoting.connections.connection` feeds the decoder what it received and
writes what `encode` made.

| offset | size | field |
|---|---|---|
| 0 | 4 | length of all that follows |
| 4 | 1 | serialize type: 0 JSON, 1 ROCKETMQ |
| 5 | 3 | header length h |
| 8 | h | header |
| 8+h | length-4-h | body |

Invariants: the decoder holds at most one unfinished frame, and refuses a frame by its first four
bytes when it is larger than `frame_size_max`, so its memory is bounded; once it raised FrameError
every later call raises it too. Lengths are checked strictly; header values are decoded tolerantly,
as Java peers do (unknown keys, nulls, numbers where text is usual, unknown languages).

Source: RocketMQ RemotingCommand.encode/decode, RocketMQSerializable, NettyDecoder.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final

import msgspec

from remoting.errors import FrameError, UnencodableError
from remoting.protocol.command import RemotingCommand, SerializeType

__all__ = [
    "FRAME_SIZE_MAX",
    "FrameDecoder",
    "decode_codes",
    "decode_frame",
    "encode",
    "encode_head",
    "frame_of_json",
    "json_text",
    "language_name",
]

FRAME_SIZE_MAX: Final = 16_777_216
_PREFIX: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
assert _PREFIX.size == 8
_HEADER_SIZE_MASK: Final = 0xFF_FFFF
# A body is bounded where it is read, a header is read before anybody is authorised. The largest
# honest one has properties of 32 KiB, escaped sixfold.
_HEADER_SIZE_MAX: Final = 1 << 20
_TOLERANT_SIZE_MAX: Final = 1 << 18

# code 2, language 1, version 2, opaque 4, flag 4, remark length 4
_BINARY_HEAD: Final = struct.Struct(">hBhiii")
assert _BINARY_HEAD.size == 17
_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">i")
_CODE_MAX_BINARY: Final = 0x7FFF
_TLS_RECORDS: Final = frozenset({0x15, 0x16})  # an alert, a handshake
_TLS_MAJOR: Final = 3
_HTTP_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"HTTP"})

_LANGUAGES: Final = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
_LANGUAGE_OTHER: Final = 7
_LANGUAGE_CODES: Final = {name: code for code, name in enumerate(_LANGUAGES)}


def language_name(code: int) -> str:
    """Return RocketMQ's name of a `RemotingCommand.language`."""
    return _LANGUAGES[code] if 0 <= code < len(_LANGUAGES) else "OTHER"


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _JsonHeader(msgspec.Struct, gc=False):
    """The JSON header that nearly every peer sends; any other goes to the tolerant decoder."""

    code: _Int32
    opaque: _Int32
    language: str = "JAVA"
    version: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None


class _JsonCodes(msgspec.Struct, gc=False):
    """Fields that name a frame; every other field is skipped."""

    code: _Int32
    opaque: _Int32
    flag: _Int32 = 0


class _JsonHeaderOut(msgspec.Struct, omit_defaults=True, gc=False):
    # extFields is always present: Java clients use it without a null check.
    code: int
    language: str
    version: int
    opaque: int
    flag: int
    extFields: dict[str, str]
    remark: str | None = None


_read_json_header = msgspec.json.Decoder(_JsonHeader).decode
_read_json_codes = msgspec.json.Decoder(_JsonCodes).decode
_read_json_any = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


def encode(command: RemotingCommand) -> bytes:
    """Encode the whole frame. Raises UnencodableError where the command can't be one."""
    return encode_head(command) + command.body if command.body else encode_head(command)


def encode_head(command: RemotingCommand, frame_size_max: int = FRAME_SIZE_MAX) -> bytes:
    """Encode the frame without its body, which must follow it on the wire, unchanged.

    A code that does not fit the binary header is sent in JSON: the encoding is per frame. Raises
    UnencodableError.
    """
    is_binary = (
        command.serialize_type == SerializeType.ROCKETMQ
        and -_CODE_MAX_BINARY - 1 <= command.code <= _CODE_MAX_BINARY
    )
    try:
        header = _encode_binary_header(command) if is_binary else _encode_json_header(command)
    except UnicodeEncodeError as error:
        raise UnencodableError(
            f"command {command.code} holds text that is not UTF-8: {error}"
        ) from error
    type_bits = 1 << 24 if is_binary else 0
    header_size = len(header)
    length = 4 + header_size + len(command.body)
    if length + 4 > frame_size_max or header_size > _HEADER_SIZE_MAX:
        raise UnencodableError(
            f"command {command.code} needs a frame of {length + 4} bytes,"
            f" more than {frame_size_max}"
        )
    return _PREFIX.pack(length, type_bits | header_size) + header


def frame_of_json(header: bytes) -> bytes:
    """Return the frame without a body whose JSON header is encoded already."""
    size = len(header)
    return _PREFIX.pack(4 + size, size) + header


def json_text(value: str) -> str:
    """Return a text as a JSON header holds it, quoted."""
    return _encode_json(value).decode()


def decode_frame(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """Decode exactly one whole frame. Raises FrameError."""
    commands = FrameDecoder().feed(bytes(frame))
    if len(commands) != 1:
        raise FrameError(f"{len(frame)} bytes hold {len(commands)} frames, not one")
    return commands[0]


def decode_codes(serialize_type: int, header: bytes | memoryview) -> tuple[int, int, int]:
    """Return code, opaque and flag of a header, for one that passes frames on without using them.

    The fields behind them are not checked. Raises FrameError where the three can't be read.
    """
    if serialize_type == SerializeType.ROCKETMQ:
        if len(header) < _BINARY_HEAD.size:
            raise FrameError(f"binary header of {len(header)} bytes")
        code, _, _, opaque, flag, _ = _BINARY_HEAD.unpack_from(header)
        return code, opaque, flag
    try:
        codes = _read_json_codes(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = _decode_json_tolerantly(memoryview(header))
        return fields.code, fields.opaque, fields.flag
    return codes.code, codes.opaque, codes.flag


class FrameDecoder:
    """Decodes a byte stream into commands, however it is cut into pieces."""

    __slots__ = ("_error", "_frame_size_max", "_pending")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._pending = bytearray()
        self._error: FrameError | None = None

    @property
    def pending_size(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Return every command completed by `data`, in order.

        Raises FrameError at the first bytes that are not a frame, and on every later call; the
        commands before them in the same piece are lost with the connection.
        """
        if self._error is not None:
            raise self._error
        commands: list[RemotingCommand] = []
        try:
            if not self._pending:
                consumed = self._parse(data, commands)
                if consumed < len(data):
                    self._pending += memoryview(data)[consumed:]
            else:
                self._pending += data
                consumed = self._parse(self._pending, commands)
                if consumed:
                    del self._pending[:consumed]
        except FrameError as error:
            self._error = error
            self._pending = bytearray()
            raise
        return commands

    def _parse(self, data: bytes | bytearray, commands: list[RemotingCommand]) -> int:
        """Append the complete frames in `data` to `commands`; return the bytes they took."""
        start = 0
        size = len(data)
        with memoryview(data) as view:
            while size - start >= 8:
                length, word = _PREFIX.unpack_from(data, start)
                self._check_length(length)
                if word >> 24 > 1:
                    raise FrameError(
                        f"serialize type {word >> 24} is neither 0 (JSON) nor 1 (ROCKETMQ)"
                    )
                header_size = word & _HEADER_SIZE_MASK
                header_end = start + 8 + header_size
                end = start + 4 + length
                if header_end > end:
                    raise FrameError(f"header length {header_size} exceeds frame length {length}")
                if header_size > _HEADER_SIZE_MAX:
                    raise FrameError(f"header length {header_size}, more than {_HEADER_SIZE_MAX}")
                if end > size:
                    return start
                body = bytes(view[header_end:end]) if header_end < end else b""
                header = view[start + 8 : header_end]
                if word >> 24 == 0:
                    commands.append(_decode_json_header(header, body))
                else:
                    commands.append(_decode_binary_header(bytes(header), body))
                start = end
        if size - start >= 4:
            self._check_length(_LENGTH.unpack_from(data, start)[0])
        return start

    def _check_length(self, length: int) -> None:
        if length < 4 or length + 4 > self._frame_size_max:
            raise FrameError(
                f"frame length {length} is outside 4..{self._frame_size_max - 4}"
                f"{_other_protocol(length)}"
            )


def _other_protocol(length: int) -> str:
    """Return which other protocol an invalid length is the start of, where that is known."""
    first = _LENGTH.pack(length)
    if first[0] in _TLS_RECORDS and first[1] == _TLS_MAJOR:
        return ": the peer speaks TLS, and here is plain text"
    return ": the peer speaks HTTP" if first in _HTTP_METHODS else ""


def _decode_json_header(header: memoryview, body: bytes) -> RemotingCommand:
    try:
        fields = _read_json_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = _decode_json_tolerantly(header)
    ext_fields = fields.extFields
    return RemotingCommand(
        code=fields.code,
        opaque=fields.opaque,
        flag=fields.flag,
        language=_LANGUAGE_CODES.get(fields.language, _LANGUAGE_OTHER),
        version=fields.version,
        remark=fields.remark,
        ext_fields={} if ext_fields is None else ext_fields,
        body=body,
        serialize_type=SerializeType.JSON,
    )


def _decode_json_tolerantly(header: memoryview) -> _JsonHeader:
    """Decode a JSON header as fastjson does: numbers as text, text as numbers, nulls."""
    if len(header) > _TOLERANT_SIZE_MAX:
        raise FrameError(f"header of {len(header)} bytes is not of the shape of RocketMQ's")
    try:
        fields = _read_json_any(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError(f"header is a JSON {type(fields).__name__}, not an object")
    ext_fields = fields.get("extFields")
    if ext_fields is not None and not isinstance(ext_fields, dict):
        raise FrameError("header field extFields is not an object")
    language = fields.get("language")
    if isinstance(language, int) and 0 <= language < len(_LANGUAGES):
        language = _LANGUAGES[language]
    remark = fields.get("remark")
    return _JsonHeader(
        code=_int_field(fields, "code", None),
        opaque=_int_field(fields, "opaque", 0),
        language=language if isinstance(language, str) else "OTHER",
        version=_int_field(fields, "version", 0),
        flag=_int_field(fields, "flag", 0),
        remark=None if remark is None else _text(remark),
        extFields={
            key: _text(value) for key, value in (ext_fields or {}).items() if value is not None
        },
    )


def _int_field(fields: dict[str, Any], name: str, default: int | None) -> int:
    value = fields.get(name)
    if value is None:
        value = default
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            value = None
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise FrameError(f"header field {name} is no 32-bit integer: {fields.get(name)!r:.80}")
    return int(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return _encode_json(value).decode()


def _encode_json_header(command: RemotingCommand) -> bytes:
    language = command.language
    return _encode_json(
        _JsonHeaderOut(
            command.code,
            _LANGUAGES[language] if 0 <= language < len(_LANGUAGES) else "OTHER",
            command.version,
            command.opaque,
            command.flag,
            command.ext_fields,
            command.remark,
        )
    )


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    pairs = bytearray()
    for key, value in command.ext_fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        if len(key_bytes) > 0x7FFF:
            raise UnencodableError(f"extField name of {len(key_bytes)} bytes, more than 32767")
        pairs += _SHORT.pack(len(key_bytes))
        pairs += key_bytes
        pairs += _INT.pack(len(value_bytes))
        pairs += value_bytes
    try:
        head = _BINARY_HEAD.pack(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise UnencodableError(
            f"command {command.code} does not fit a binary header: {error}"
        ) from error
    return b"".join((head, remark, _INT.pack(len(pairs)), pairs))


def _decode_binary_header(header: bytes, body: bytes) -> RemotingCommand:
    size = len(header)
    if size < _BINARY_HEAD.size + 4:
        raise FrameError(f"binary header of {size} bytes, fewer than {_BINARY_HEAD.size + 4}")
    code, language, version, opaque, flag, remark_size = _BINARY_HEAD.unpack_from(header)
    at = _BINARY_HEAD.size
    if not 0 <= remark_size <= size - at - 4:
        raise FrameError(f"remark length {remark_size} exceeds the binary header of {size} bytes")
    try:
        remark = header[at : at + remark_size].decode() if remark_size else None
        at += remark_size
        (pairs_size,) = _INT.unpack_from(header, at)
        at += 4
        if pairs_size != size - at:
            raise FrameError(f"extFields length {pairs_size}, but {size - at} bytes are left")
        ext_fields: dict[str, str] = {}
        while at < size:
            if size - at < 2:
                raise FrameError("extFields end inside a key length")
            (key_size,) = _SHORT.unpack_from(header, at)
            at += 2
            if key_size + 4 > size - at:
                raise FrameError(f"extField key length {key_size} exceeds the header")
            key = header[at : at + key_size].decode()
            at += key_size
            (value_size,) = _INT.unpack_from(header, at)
            at += 4
            if not 0 <= value_size <= size - at:
                raise FrameError(f"extField {key!r} has value length {value_size}")
            ext_fields[key] = header[at : at + value_size].decode()
            at += value_size
    except UnicodeDecodeError as error:
        raise FrameError(f"binary header is not UTF-8: {error}") from error
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        language=language,
        version=version,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )
