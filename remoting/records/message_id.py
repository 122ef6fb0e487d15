"""Identifiers of messages: offset message ids, client unique ids, and Java's string hash.

Place in the data path: a broker answers a send with the offset message id, a producer stamps
UNIQ_KEY before it sends, and ConsumeQueue units carry the hash of a message's tags.

offset message id, upper-case hex:

| size | field |
|---|---|
| 4 or 16 | ip of the storing broker |
| 4 | port |
| 8 | physical offset of the record |

client unique id (UNIQ_KEY), upper-case hex:

| size | field |
|---|---|
| 4 or 16 | ip of the producer |
| 2 | process id, low 16 bits |
| 4 | a number that distinguishes generators of one process |
| 4 | milliseconds since the first of this month, 00:00 UTC |
| 2 | counter |

Source: RocketMQ MessageDecoder, MessageClientIDSetter; java.lang.String.hashCode.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import Final

from remoting.errors import RecordError

__all__ = [
    "UniqueIdGenerator",
    "java_string_hash",
    "join_host",
    "may_be_host",
    "offset_msg_id",
    "pack_host",
    "parse_offset_msg_id",
    "split_host",
    "tags_code",
    "unpack_host",
]

_PORT_AND_OFFSET: Final = struct.Struct(">iq")
_MILLISECONDS_PER_DAY: Final = 86_400_000
_REMEMBERED_SIZE_MAX: Final = 128  # characters of a text whose hash is remembered


def split_host(host: str) -> tuple[str, int]:
    """Split "ip:port" or "[ipv6]:port". Raises RecordError."""
    ip, separator, port = host.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 0xFFFF or not may_be_host(ip):
        raise RecordError(f"host {host!r} is not ip:port")
    if ip.startswith("[") and ip.endswith("]"):
        ip = ip[1:-1]
    return ip, int(port)


def may_be_host(name: str) -> bool:
    """Return whether resolvers take `name`; others raise ValueError, for which no dial is ready.

    They do so for a label that is empty or has more than 63 characters, as `broker-..svc` has.
    """
    try:
        return b"\0" not in name.encode("idna")
    except UnicodeError:
        return False


def join_host(ip: str, port: int) -> str:
    """Join to the text form that `split_host` splits."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """Encode a host as records store it: 8 bytes for IPv4, 20 for IPv6. Raises RecordError."""
    ip, port = split_host(host)
    try:
        packed = ipaddress.ip_address(ip).packed
    except ValueError as error:
        raise RecordError(f"host {host!r} is not ip:port: {error}") from error
    return packed + port.to_bytes(4, "big")


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> str:
    """Decode what `pack_host` encodes. A port beyond 16 bits is kept unchanged."""
    ip = ipaddress.ip_address(packed[:-4])
    return join_host(str(ip), int.from_bytes(packed[-4:], "big"))


def offset_msg_id(host: str, port: int, position: int) -> str:
    """Return the message id that names the broker and the physical offset of a record."""
    return (pack_host(join_host(host, port)) + position.to_bytes(8, "big")).hex().upper()


def parse_offset_msg_id(message_id: str) -> tuple[str, int, int]:
    """Return (ip, port, physical offset). Raises RecordError."""
    if len(message_id) not in {32, 56}:
        raise RecordError(f"offset message id has {len(message_id)} characters, not 32 or 56")
    try:
        packed = bytes.fromhex(message_id)
    except ValueError as error:
        raise RecordError(f"offset message id {message_id!r} is not hexadecimal") from error
    if len(packed) not in {16, 28}:
        raise RecordError(f"offset message id {message_id!r} is not hexadecimal")
    port, position = _PORT_AND_OFFSET.unpack_from(packed, len(packed) - 12)
    return str(ipaddress.ip_address(packed[:-12])), port, position


def java_string_hash(text: str) -> int:
    """Compute String.hashCode: a signed 32-bit hash over UTF-16 units."""
    return _short_hash(text) if len(text) <= _REMEMBERED_SIZE_MAX else _hash(text)


def _hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


_short_hash = lru_cache(maxsize=16_384)(_hash)


def tags_code(tags: str | None) -> int:
    """Return the tags code of a ConsumeQueue unit; 0 without tags. The whole string is hashed."""
    return java_string_hash(tags) if tags else 0


class UniqueIdGenerator:
    """Makes UNIQ_KEYs. Two ids are equal only when all fields of the table above are.

    The caller gives ip, process id and a random `instance` (in place of Java's class loader hash),
    and for each id the wall time; the counter separates ids of one millisecond. Where 65,536 ids or
    more are made within one millisecond, or the clock goes backwards, the time field runs ahead of
    the clock rather than repeat an id.
    """

    def __init__(self, *, ip: str, pid: int, instance: int) -> None:
        self._prefix = (
            ipaddress.ip_address(ip).packed
            + (pid & 0xFFFF).to_bytes(2, "big")
            + (instance & 0xFFFF_FFFF).to_bytes(4, "big")
        )
        self._time_ms = -1
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = 0
        self._first_counter = 0

    def next_id(self, now_ms: int) -> str:
        """Return a new id; `now_ms` is Unix time in milliseconds."""
        self._counter = (self._counter + 1) & 0xFFFF
        if now_ms > self._time_ms:
            self._time_ms = now_ms
            self._first_counter = self._counter
        # The counter came round within this millisecond: only the time can make the id new.
        elif self._counter == self._first_counter:
            self._time_ms += 1
        if not self._month_start_ms <= self._time_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_bounds_ms(self._time_ms)
        since_month_ms = self._time_ms - self._month_start_ms
        tail = (since_month_ms << 16) | self._counter
        return (self._prefix + tail.to_bytes(6, "big")).hex().upper()


def _month_bounds_ms(time_ms: int) -> tuple[int, int]:
    """Return the first millisecond of the month of `time_ms` and of the next, in UTC.

    Civil-from-days by Howard Hinnant's algorithm: the core takes no calendar from a clock module.
    """
    day = time_ms // _MILLISECONDS_PER_DAY
    year, month = _civil_month(day)
    next_year, next_month = (year + 1, 1) if month == 12 else (year, month + 1)
    return (
        _days_from_civil(year, month) * _MILLISECONDS_PER_DAY,
        _days_from_civil(next_year, next_month) * _MILLISECONDS_PER_DAY,
    )


def _civil_month(day: int) -> tuple[int, int]:
    shifted = day + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month


def _days_from_civil(year: int, month: int) -> int:
    """Return the days from 1970-01-01 to the first of that month."""
    year -= 1 if month <= 2 else 0
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468
