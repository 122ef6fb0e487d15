"""The export's dumb model: one store read entry by entry, record by record, field by field.

What `verify.export` reads in bulk must come out as it does here, row by row. Slow, and written to
be compared with docs/FORMATS.md line by line.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import lz4.frame
import msgspec
import xxhash
import zstandard

from verify.export.messages.queue_units import QueueFile
from verify.export.store_files import Store

Row = dict[str, Any]

HEADER = struct.Struct(">IIQQQB3sII")
UNIT = struct.Struct(">qiq")
FIXED = struct.Struct(">IIIiIqqiq")
INT64_MAX = (1 << 63) - 1
DELAYS_S = (1, 5, 10, 30, *(60 * m for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class PayloadError(Exception):
    pass


def log_rows(store: Store, traced_index: int = 0) -> list[Row]:
    """The table `log` of one replica."""
    rows = list(_unjoined(store, traced_index))
    halves: dict[int, Row] = {}
    for row in rows:
        if row["kind"] == "half":
            halves.setdefault(row["queue_offset"], row)
    for row in rows:
        if row["kind"] == "op":
            half = halves.get(row["half_offset"], {})
            row |= {name: half.get(name) for name in ("value", "uniq_key", "keys", "tx")}
        row.pop("half_offset", None)
    return rows


def unit_rows(store: Store) -> list[Row]:
    """The table `cq` of one replica."""
    return [
        {
            "broker_group": store.broker_group,
            "node": store.node,
            "topic": file.topic,
            "queue": file.queue,
            "queue_offset": file.first_offset + place,
            "position": position,
            "size": size,
            "tag_hash": tag,
        }
        for file in store.queue_files
        for place, (position, size, tag) in enumerate(_units(file))
        if size > 0
    ]


def _units(file: QueueFile) -> list[tuple[int, int, int]]:
    content = file.path.read_bytes()
    return list(UNIT.iter_unpack(content[: len(content) - len(content) % 20]))


def _unjoined(store: Store, traced_index: int) -> Iterator[Row]:
    units = {
        (file.topic, file.queue, file.first_offset + place): unit
        for file in store.queue_files
        if file.first_offset % 300_000 == 0
        for place, unit in enumerate(_units(file))
        if unit[1] > 0
    }
    checkpoint, base = store.checkpoint, store.base
    commit_index = max(checkpoint.commit_index, traced_index)
    last_index = 0 if base is None else base.index
    before: tuple[int, int | None, int | None] = (1, 0, 0)
    if base is not None:
        before = (base.index + 1, base.position, base.chain)
    elif store.segments and store.segments[0].position > 0:
        before = (0, None, None)
    for segment in store.segments:
        data = segment.path.read_bytes()
        for item in _entries(data, segment.position, *before):
            last_index = item["index"] or last_index  # 0: an unknown index tells no end
            common: Row = {
                "broker_group": store.broker_group,
                "node": store.node,
                "index": item["index"],
                "position": item["position"],
                "slot": 0,
                "committed": item["index"] <= commit_index,
            }
            if "damage" in item:
                yield common | {"kind": "damaged", "damage": item["damage"]}
            else:
                above = item["index"] > checkpoint.applied_index
                yield from _entry_rows(common, item, None if above else units)
        before = _segment_end(data, segment.position)
    emptying = base is not None and base.emptying
    if checkpoint.clean and last_index < checkpoint.commit_index and not emptying:
        yield {
            "broker_group": store.broker_group,
            "node": store.node,
            "index": last_index + 1,
            "slot": 0,
            "committed": True,
            "kind": "damaged",
            "damage": f"the node stopped cleanly with commit index {checkpoint.commit_index}, "
            f"its log ends at {last_index}",
        }


# Entries.


def _entries(
    data: bytes, start: int, index: int, position: int | None, chain: int | None
) -> Iterator[Row]:
    offset = 0
    if position not in {None, start}:
        reason = f"the segment before ends at {position}, the next begins at {start}"
        yield {"index": index, "position": position, "damage": reason}
        chain = None
    while any(data[offset:]):
        place = {"position": start + offset}
        defect = _header_defect(data, offset, start)
        if defect is not None:
            yield place | {"index": min(index, INT64_MAX), "damage": defect}
            return
        _, size, found, term, _, kind, _, chain_before, own = HEADER.unpack_from(data, offset)
        payload = data[offset + 44 : offset + size]
        crc = zlib.crc32(payload, zlib.crc32(data[offset : offset + 40]))
        if size > len(data) - offset:
            defect = f"the entry of {size} bytes is cut short after {len(data) - offset}"
        elif crc != own:
            defect = f"the CRC of header and payload is {crc:08x}, the entry has {own:08x}"
        elif index not in {0, found}:
            defect = f"the entry has index {found}, {index} belongs there"
        elif chain is not None and chain_before != chain:
            defect = f"the entry continues chain {chain_before:08x}, the one before has {chain:08x}"
        elif max(found, term) > INT64_MAX:
            defect = f"no log has the index {found} or the term {term}"
        if defect is None:
            told = {"index": found, "term": term, "kind": kind, "chain": own, "payload": payload}
            yield place | told
        else:
            yield place | {"index": min(index or found, INT64_MAX), "damage": defect}
        offset, index, chain = offset + size, found + 1, own


def _segment_end(data: bytes, start: int) -> tuple[int, int | None, int | None]:
    offset, index, chain = 0, 0, 0
    while any(data[offset:]):
        if _header_defect(data, offset, start) is not None:
            return 0, None, None
        _, size, index, _, _, _, _, _, chain = HEADER.unpack_from(data, offset)
        offset += size
    return index + 1, start + offset, chain


def _header_defect(data: bytes, offset: int, start: int) -> str | None:
    if len(data) - offset < HEADER.size:
        return f"a header is cut short after {len(data) - offset} bytes"
    magic, size, index, _, position, kind, zeros, _, _ = HEADER.unpack_from(data, offset)
    if magic != 0x4C4D5131:
        return f"an entry begins with {magic:08x}, which is not its magic"
    if position != start + offset:
        return f"the entry says that it stands at {position}"
    if size < HEADER.size or index < 1 or kind > 2 or zeros != b"\0\0\0":
        return f"the header is garbage: size {size}, index {index}, kind {kind}"
    return None


# What an entry holds.


def _entry_rows(
    common: Row, entry: Row, units: dict[tuple[str, int, int], tuple[int, int, int]] | None
) -> Iterator[Row]:
    common |= {"term": entry["term"], "chain": entry["chain"]}
    if entry["kind"] != 2:
        yield common | {"kind": "config" if entry["kind"] == 1 else "noop"}
        return
    payload = entry["payload"]
    try:
        first, commands = _commands(payload)
        records = list(_records(payload, first))
    except PayloadError as error:
        yield common | {"kind": "damaged", "damage": str(error)}
        return
    decisions = {command[1]: command[3] for command in commands if command[0] == "decide"}
    slot = 0
    for record in records:
        position = entry["position"] + 44 + record.pop("at")
        own = (position, record["size"], record["tag_hash"])
        at = (record["topic"], record["queue"], record["queue_offset"])
        decision = decisions.get(record["half_offset"]) if record["kind"] == "op" else None
        cq_ok = None if units is None else units.get(at) == own
        told = {"slot": slot, "position": position, "decision": decision, "cq_ok": cq_ok}
        yield common | record | told
        slot += 1
    for command in commands:
        for told in _told_by(command) or [{"kind": "command"}]:
            yield common | told | {"slot": slot}
            slot += 1
    if slot == 0:
        yield common | {"kind": "command"}


def _told_by(command: list[Any]) -> list[Row]:
    """A row for each place that a command names: of a consumer offset, or of a popped message."""
    name = command[0]
    renamed = {"ack_order": "ack", "invisible": "change", "pop_order": "pop"}
    kind = renamed.get(name, name) if isinstance(name, str) else None
    place = dict(zip(("client_group", "topic", "queue"), command[1:4], strict=False))
    return [{"kind": kind, **place, "queue_offset": offset} for offset in _offsets_of(command)]


_POP_KINDS = {
    "pop": [str, str, int, int, int, int, int, list],
    "pop_order": [str, str, int, int, int, int, int, str, list],
    "ack": [str, str, int, list],
    "ack_order": [str, str, int, int, int],
    "invisible": [str, str, int, int, int, int, int],
}


def _offsets_of(command: list[Any]) -> list[Any]:
    match command[0]:
        case "offset" | "ack_order" | "invisible":
            return [command[4]]
        case "pop" | "pop_order":
            return list(command[len(_POP_KINDS[command[0]])])
        case "ack":
            return [row[0] for row in command[4]]
    return []


def _commands(payload: bytes) -> tuple[int, list[list[Any]]]:
    if len(payload) < 8:
        raise PayloadError(f"a payload of {len(payload)} bytes is too short")
    version, flags, _, size = struct.unpack_from(">BBHI", payload)
    if version != 1 or flags > 1 or size > len(payload) - 8:
        raise PayloadError(f"payload version {version} with a table of {size} bytes")
    try:
        table = msgspec.msgpack.decode(payload[8 : 8 + size], type=list[msgspec.Raw])
        if len(table) < 3:
            raise PayloadError("the table is not [store_timestamp_ms, runs, commands]")
        commands = msgspec.msgpack.decode(table[2], type=list[list[Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"the table is not msgpack as drawn: {error}") from error
    for command in commands:
        if not command:
            raise PayloadError("a command in the table is not a list with a name")
        if not _is_as_drawn(command):
            raise PayloadError(f"the command {command[0]} in the table has other fields than drawn")
    return 8 + size, commands


def _is_as_drawn(command: list[Any]) -> bool:
    kinds = [type(field) for field in command[1:]]
    if command[0] == "offset":
        if kinds != [str, str, int, int]:
            return False
        return abs(command[3] + 0.5) < 1 << 31 and -(1 << 63) <= command[4] < 1 << 63
    if command[0] == "decide":
        return len(kinds) >= 3 and kinds[0] is int and kinds[2] is str
    if isinstance(command[0], str) and command[0] in _POP_KINDS:
        drawn = _POP_KINDS[command[0]]
        if kinds[: len(drawn)] != drawn:
            return False
        if command[0] == "ack" and not all(type(row) is list and row for row in command[4]):
            return False
        offsets = _offsets_of(command)
        return abs(command[3] + 0.5) < 1 << 31 and all(
            type(offset) is int and -(1 << 63) <= offset < 1 << 63 for offset in offsets
        )
    return True


def _records(payload: bytes, offset: int) -> Iterator[Row]:
    while offset < len(payload):
        try:
            record = _record(payload, offset)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise PayloadError(f"the record at byte {offset} can't be read: {error}") from error
        yield record
        offset += record["size"]


def _record(payload: bytes, offset: int) -> Row:
    size, magic, _, queue, flag, queue_offset, _, sys_flag, _ = FIXED.unpack_from(payload, offset)
    if magic not in {0xDAA320A7, 0xDAA320AB} or not 0 < size <= len(payload) - offset:
        raise PayloadError(f"the record at byte {offset} has magic {magic:08x} and size {size}")
    at = offset + FIXED.size + (20 if sys_flag & 0x10 else 8)
    (stored_ms,) = struct.unpack_from(">q", payload, at)
    at += 8 + (20 if sys_flag & 0x20 else 8)
    _, prepared, body_size = struct.unpack_from(">iqi", payload, at)
    body_at = at + 16
    at = body_at + body_size
    if magic == 0xDAA320A7:
        topic_size, at = payload[at], at + 1
    else:
        (topic_size,) = struct.unpack_from(">H", payload, at)
        at += 2
    topic = payload[at : at + topic_size].decode()
    at += topic_size
    (properties_size,) = struct.unpack_from(">H", payload, at)
    at += 2
    if body_size < 0 or at + properties_size != offset + size:
        raise PayloadError(f"the record at byte {offset} does not end where its size says")
    block = payload[at : at + properties_size].decode()
    # An empty value counts in a digest, and is none to whoever reads the message.
    properties = {name: value for name, value in _pairs(block) if value}
    body = payload[body_at : body_at + body_size]
    kind = "final" if sys_flag & 0xC == 8 and prepared else "message"
    kind = {HALF_TOPIC: "half", OP_TOPIC: "op"}.get(topic, kind)
    op = kind == "op"
    uniq_key = properties.get("UNIQ_KEY")
    first = body.split(b",", 1)[0]
    half_offset = int(first) if op and first.isdigit() else None
    return {
        "at": offset,
        "size": size,
        "kind": kind,
        "topic": topic,
        "queue": queue,
        "queue_offset": queue_offset,
        "tag_hash": _unit_value(topic, queue, stored_ms, properties),
        "value": None if op else properties.get("lmq_value", uniq_key),
        "uniq_key": None if op else uniq_key,
        "keys": None if op else (properties.get("KEYS", "").split() or None),
        "digest": None if op else digest(body, flag, sys_flag, dict(_pairs(block))),
        "tx": properties.get("lmq_tx"),
        "stored_ms": stored_ms,
        "half_offset": half_offset,
    }


def _unit_value(topic: str, queue: int, stored_ms: int, properties: dict[str, str]) -> int:
    if topic == "SCHEDULE_TOPIC_XXXX" and 0 <= queue < len(DELAYS_S):
        return stored_ms + 1000 * DELAYS_S[queue]
    due = properties.get("TIMER_OUT_MS", "")
    if topic == "rmq_sys_wheel_timer" and due.isdecimal():
        return int(due) + 1
    code = 0
    for (unit,) in struct.iter_unpack(">H", properties.get("TAGS", "").encode("utf-16-be")):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def _pairs(block: str) -> list[tuple[str, str]]:
    pairs = (item.partition("\x01") for item in block.split("\x02") if item)
    return [(name, value) for name, _, value in pairs if name]


def digest(body: bytes, flag: int, sys_flag: int, properties: dict[str, str]) -> int | None:
    """As the run format says it."""
    if sys_flag & 1:
        try:
            match sys_flag & 0x700:
                case 0 | 0x300:
                    body = zlib.decompress(body)
                case 0x100:
                    body = lz4.frame.decompress(body)
                case 0x200:
                    body = zstandard.ZstdDecompressor().decompress(body)
                case _:
                    return None
        except (zlib.error, RuntimeError, zstandard.ZstdError):
            return None
    counted = {
        name.encode(): value.encode()
        for name, value in properties.items()
        if name in {"TAGS", "KEYS"} or name.startswith("u_")
    }
    content = body + b"\0" + struct.pack(">I", flag)
    for name in sorted(counted):
        content += name + b"\x01" + counted[name] + b"\x02"
    code = xxhash.xxh3_64_intdigest(content)
    return code - (1 << 64) if code >= 1 << 63 else code
