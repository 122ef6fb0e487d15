r"""The properties block of a message: `name \x01 value \x02 ...` in UTF-8.

Place in the data path: field `i` of a send, the last field of every stored record.

Two dialects exist: 5.x ends the block with \x02, 4.9 omits the last one; both are decoded, and \x02
at the end is written. As in RocketMQ the decoder drops an entry shorter than three characters,
without \x01, or with an empty name or value.

Source: RocketMQ MessageDecoder.messageProperties2String / string2messageProperties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.errors import RecordError

__all__ = [
    "PROPERTIES_SIZE_MAX",
    "append_properties",
    "decode_properties",
    "encode_properties",
    "find_property",
    "parse_properties_text",
    "properties_text",
    "property_mark",
]

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
PROPERTIES_SIZE_MAX: Final = 32_767
_SEPARATOR_BYTE: Final = b"\x02"


def properties_text(properties: Mapping[str, str]) -> str:
    """Encode the block as text, as a send header carries it.

    Raises RecordError where a name or value would decode as another property: where one holds
    \\x02, or a name \\x01. A value may hold \\x01, as those of other clients do: the first one
    separates.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    count = len(properties)
    if text.count(PROPERTY_SEPARATOR) != count or (
        text.count(NAME_VALUE_SEPARATOR) != count
        and any(NAME_VALUE_SEPARATOR in name for name in properties)
    ):
        raise RecordError("a property holds the separator \\x01 or \\x02")
    return text


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode the block. Raises RecordError as `properties_text`, and above 32,767 bytes."""
    encoded = properties_text(properties).encode()
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise RecordError(f"properties take {len(encoded)} bytes, more than {PROPERTIES_SIZE_MAX}")
    return encoded


def parse_properties_text(text: str) -> dict[str, str]:
    """Decode a block in text form; the last of two equal names wins."""
    properties: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def decode_properties(encoded: bytes | memoryview) -> dict[str, str]:
    """Decode a block. Raises RecordError where it is not UTF-8."""
    try:
        return parse_properties_text(str(encoded, "utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"properties are not UTF-8: {error}") from error


def append_properties(encoded: bytes, properties: Mapping[str, str]) -> bytes:
    """Append pairs to a block of either dialect; on decoding, the last of equal names wins.

    Raises RecordError as `encode_properties`.
    """
    joint = b"" if not encoded or encoded.endswith(_SEPARATOR_BYTE) else _SEPARATOR_BYTE
    joined = encoded + joint + properties_text(properties).encode()
    if len(joined) > PROPERTIES_SIZE_MAX:
        raise RecordError(f"properties take {len(joined)} bytes, more than {PROPERTIES_SIZE_MAX}")
    return joined


def property_mark(name: str) -> bytes:
    """Return the bytes with which a property of that name begins."""
    return f"{name}\x01".encode()


def find_property(encoded: bytes, name: str) -> str | None:
    """Return one value without decoding the rest: the one that `decode_properties` has, of two
    equal names the last one with a value. For hot paths.

    Raises RecordError where the value is not UTF-8.
    """
    needle = property_mark(name)
    limit = len(encoded)
    while True:
        found = encoded.rfind(_SEPARATOR_BYTE + needle, 0, limit)
        if found < 0 and not encoded.startswith(needle, 0, limit):
            return None
        start = found + 1 + len(needle)  # of -1, it stands first
        end = encoded.find(_SEPARATOR_BYTE, start)
        value = encoded[start:] if end < 0 else encoded[start:end]
        if value:
            break
        if found < 0:
            return None
        limit = found + 1  # an earlier one, which may end here
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"property {name!r} is not UTF-8: {error}") from error
