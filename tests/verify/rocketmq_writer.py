"""Writes stores as Apache RocketMQ's brokers do: CommitLog, ConsumeQueues, DLedger's data files.

Own code, like everything in these tests: nothing of the broker or of the verifier is used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MAGIC, BLANK = 0xDAA320A7, 0xCBD43194
DLEDGER_HEADER = 48


@dataclass(kw_only=True)
class Message:
    """One record, before a log gives it its position."""

    topic: str
    offset: int
    queue: int = 0
    body: bytes = b"body"
    sys_flag: int = 0
    prepared: int = 0
    stored_ms: int = 1_000
    term: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    tag_hash: int = 0
    at: int = 0
    size: int = 0

    def record(self, position: int) -> bytes:
        block = "".join(f"{k}\x01{v}\x02" for k, v in self.properties.items()).encode()
        topic = self.topic.encode()
        tail = struct.pack(">i", len(self.body)) + self.body + bytes([len(topic)]) + topic
        tail += struct.pack(">H", len(block)) + block
        head = struct.pack(
            ">IIIiiqqiq8sq8siq",
            84 + len(tail),
            MAGIC,
            zlib.crc32(self.body) & 0x7FFFFFFF,
            self.queue,
            0,
            self.offset,
            position,
            self.sys_flag,
            0,
            bytes(8),
            self.stored_ms,
            bytes(8),
            0,
            self.prepared,
        )
        self.at, self.size = position, 84 + len(tail)
        return head + tail


def value(name: str, **more: str) -> dict[str, str]:
    """The properties that the laboratory's clients give a message."""
    return {"UNIQ_KEY": f"key-{name}", "lmq_value": name, **more}


def write_plain(
    store: Path, messages: Sequence[Message], *, file_size: int = 2048, closed: bool = False
) -> None:
    """Write commitlog/ and ConsumeQueues of `messages`, as brokers without DLedger do.

    `closed`: as DLedger leaves it that goes on behind it.
    """
    files = _files(messages, file_size, dledger=False, first=0)
    if closed:
        end = messages[-1].at + messages[-1].size
        last = max(files)
        content = bytearray(files[last])
        struct.pack_into(">II", content, end - last, last + file_size - end, BLANK)
        files[last] = bytes(content)
    _write(store / "commitlog", files)
    write_queues(store, messages)


def write_dledger(
    store: Path,
    messages: Sequence[Message],
    *,
    file_size: int = 2048,
    first: int = 0,
    committed_index: int | None = None,
    name: str = "n0",
) -> None:
    """Write dledger-<name>/ whose first file begins at `first`, and the ConsumeQueues."""
    folder = store / f"dledger-{name}"
    _write(folder / "data", _files(messages, file_size, dledger=True, first=first))
    if committed_index is not None:
        text = f"endIndex={len(messages) - 1}\ncommittedIndex={committed_index}\n"
        (folder / "checkpoint").write_text(text)
    write_queues(store, messages)


def write_queues(store: Path, messages: Sequence[Message]) -> None:
    queues: dict[tuple[str, int], bytearray] = {}
    for message in messages:
        if message.sys_flag & 0xC in {0, 8}:
            units = queues.setdefault((message.topic, message.queue), bytearray())
            # What RocketMQ fills a queue with that does not begin at 0.
            while len(units) < 20 * message.offset:
                units += struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
            units += struct.pack(">qiq", message.at, message.size, message.tag_hash)
    for (topic, queue), units in queues.items():
        folder = store / "consumequeue" / topic / str(queue)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{0:020d}").write_bytes(bytes(units) + bytes(60))


def _files(
    messages: Sequence[Message], file_size: int, *, dledger: bool, first: int
) -> dict[int, bytes]:
    files: dict[int, bytes] = {}
    begin, content = first, b""
    for index, message in enumerate(messages):
        entry = _entry(message, index, begin + len(content), dledger=dledger)
        if len(content) + len(entry) + 8 > file_size:
            left = file_size - len(content)
            mark = (-1 & 0xFFFFFFFF, left) if dledger else (left, BLANK)
            files[begin] = (content + struct.pack(">II", *mark)).ljust(file_size, b"\0")
            begin, content = begin + file_size, b""
            entry = _entry(message, index, begin, dledger=dledger)
        content += entry
    files[begin] = content.ljust(file_size, b"\0")
    return files


def _entry(message: Message, index: int, position: int, *, dledger: bool) -> bytes:
    if not dledger:
        return message.record(position)
    body = message.record(position + DLEDGER_HEADER)
    size = DLEDGER_HEADER + len(body)
    head = struct.pack(">iiqqqiiii", 1, size, index, message.term, position, 0, 0, 0, len(body))
    return head + body


def _write(folder: Path, files: Mapping[int, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for position, content in files.items():
        (folder / f"{position:020d}").write_bytes(content)
