"""Image of the replicated state, and its bytes in a snapshot (docs/FORMATS.md section 12).

Place in the data path: `BrokerState.capture` makes an image on the loop, in a few milliseconds;
`encode_image` turns it into chunks on a thread while entries are still applied; `decode_image`
reads the chunks of a snapshot file or of an install. Pure.

Format: msgpack arrays `[name, ...]`, one after the other, whatever the borders of chunks. Tables
come in pieces of bounded size; the last array is `["end", how many came before]`, so that a stream
that was cut short is never taken for a state. Dicts keep their order: equal states have equal
bytes, and a restored state goes on exactly as the original.

Invariant: nothing in an image changes after it was made.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgpack
import msgspec

from broker.entry.topics import Topic
from broker.state.dedupe import Generation, WindowImage
from broker.state.half_table import DECISIONS, Decision, Half, HalfImage

__all__ = ["CHUNK_SIZE_MAX", "StateImage", "decode_image", "encode_image"]

CHUNK_SIZE_MAX: Final = 1 << 20
_VERSION: Final = 1
_ROWS_PER_SECTION: Final = 500  # a group's configuration may have 64 KiB: cut by size as well
_SECTION_SIZE_MAX: Final = CHUNK_SIZE_MAX // 2
_UNPACK_SIZE_MAX: Final = 1 << 26
_WINDOWS: Final = ("messages", "half_keys")

Section = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImage:
    """Image of a BrokerState, whose fields these are."""

    store_timestamp_ms: int
    topics_version: int
    topics_changed_ms: int
    topics: Mapping[str, Topic]
    groups: Mapping[str, dict[str, Any]]
    next_offsets: Mapping[tuple[str, int], int]
    consumer_offsets: Mapping[tuple[str, str, int], int]
    delay_offsets: Mapping[int, int]
    time_marks: tuple[array[int], array[int]]
    halves: HalfImage
    messages: WindowImage
    half_keys: WindowImage
    parts: Mapping[str, Iterable[Section]]  # by name of the part (`broker.entry.state_part`)

    def encode(self) -> Iterator[bytes]:
        """See raft.replicated_log.Snapshot."""
        return encode_image(self)


# Encoding ----------------------------------------------------------------------------------------


def encode_image(image: StateImage) -> Iterator[bytes]:
    """Return an image's bytes in chunks of at most CHUNK_SIZE_MAX."""
    chunk: list[bytes] = []
    size = 0
    for piece in _pieces(image):
        assert len(piece) <= CHUNK_SIZE_MAX, f"a section of {len(piece)} bytes"
        if size + len(piece) > CHUNK_SIZE_MAX:
            yield b"".join(chunk)
            chunk, size = [], 0
        chunk.append(piece)
        size += len(piece)
    yield b"".join(chunk)


def _pieces(image: StateImage) -> Iterator[bytes]:
    pack: Callable[[Section], bytes] = msgpack.Packer().pack
    count = 0
    for section in _sections(image):
        for piece in _cut(pack, section):
            yield piece
            count += 1
    yield pack(["end", count])


def _cut(pack: Callable[[Section], bytes], section: Section) -> Iterator[bytes]:
    """Return a table as one piece, or as several of its name if it is too large."""
    packed = pack(section)
    name, *values = section
    if len(packed) <= _SECTION_SIZE_MAX or len(values) == 1 or name in {"generation", "newest"}:
        yield packed
        return
    middle = len(values) // 2
    yield from _cut(pack, [name, *values[:middle]])
    yield from _cut(pack, [name, *values[middle:]])


def _sections(image: StateImage) -> Iterator[Section]:
    yield ["ledgermq-state", _VERSION]
    yield ["clock", image.store_timestamp_ms, image.topics_version, image.topics_changed_ms]
    yield from _table("topics", map(_topic_row, image.topics.values()))
    yield from _table("groups", map(list, image.groups.items()))
    yield from _table("queues", ([*key, end] for key, end in image.next_offsets.items()))
    yield from _table("offsets", ([*key, at] for key, at in image.consumer_offsets.items()))
    yield from _table("delays", map(list, image.delay_offsets.items()))
    yield ["marks", *map(_packed, image.time_marks)]
    halves = image.halves
    yield ["halves", halves.next_offset]
    yield from _table("undecided", map(_half_row, halves.undecided))
    for name, decided in (("decided", halves.decided), ("decided_before", halves.decided_before)):
        rows = ([offset, DECISIONS.index(decision)] for offset, decision in decided.items())
        yield from _table(name, rows)
    for name, window in zip(_WINDOWS, (image.messages, image.half_keys), strict=True):
        yield ["window", name, window.memory_floor_ms]
        for generations in window.epochs:
            yield ["epoch"]
            for generation in generations:
                yield _generation_section("generation", generation)
        if window.newest is not None:
            yield _generation_section("newest", window.newest)
    for name, part in image.parts.items():
        yield from _table(name, part)


def _table(name: str, rows: Iterable[Section]) -> Iterator[Section]:
    iterator = iter(rows)
    while piece := list(islice(iterator, _ROWS_PER_SECTION)):
        yield [name, *piece]


def _topic_row(topic: Topic) -> Section:
    return [getattr(topic, name) for name in Topic.__slots__]


def _half_row(half: Half) -> Section:
    return [half.queue_offset, half.position, half.size, half.stored_ms, half.checks]


def _generation_section(name: str, generation: Generation) -> Section:
    positions = generation.positions
    return [
        name,
        generation.first_ms,
        generation.last_ms,
        _packed(generation.hashes),
        None if positions is None else _packed(positions),
    ]


def _packed(values: array[int]) -> bytes:
    """Return 64-bit numbers, big-endian."""
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values.tobytes()


# Decoding ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """Image under construction, of the sections read so far."""

    count: int = 0
    ended: bool = False
    clock: tuple[int, int, int] | None = None
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    consumer_offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    time_marks: tuple[array[int], array[int]] | None = None
    half_next_offset: int | None = None
    undecided: list[Half] = field(default_factory=list)
    decided: dict[int, Decision] = field(default_factory=dict)
    decided_before: dict[int, Decision] = field(default_factory=dict)
    windows: dict[str, _WindowDraft] = field(default_factory=dict)
    window: _WindowDraft | None = None  # the one whose sections come now
    parts: dict[str, list[Section]] = field(default_factory=dict)


@dataclass(slots=True)
class _WindowDraft:
    memory_floor_ms: int
    epochs: list[list[Generation]] = field(default_factory=list)
    newest: Generation | None = None

    def image(self) -> WindowImage:
        return WindowImage(
            memory_floor_ms=self.memory_floor_ms,
            epochs=tuple(map(tuple, self.epochs)),
            newest=self.newest,
        )


def decode_image(chunks: Iterable[bytes]) -> StateImage:
    """Return the image in `chunks`. Raises ValueError if they are no state, or a part of one."""
    draft = _Draft()
    try:
        for section in _unpacked(chunks):
            if draft.ended:
                raise ValueError("something stands behind its end")
            _read_section(draft, section)
        return _finished(draft)
    except (
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        msgpack.UnpackException,
        msgspec.ValidationError,
    ) as error:
        raise ValueError(f"no state of a broker: {error!r}") from error


def _unpacked(chunks: Iterable[bytes]) -> Iterator[Section]:
    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=_UNPACK_SIZE_MAX)
    for chunk in chunks:
        unpacker.feed(chunk)
        yield from unpacker


def _read_section(draft: _Draft, section: Section) -> None:
    name, values = section[0], section[1:]
    if draft.count == 0 and [name, *values] != ["ledgermq-state", _VERSION]:
        raise ValueError(f"a state begins with its version, {_VERSION}, not with {section!r:.80}")
    if name == "end":
        if values != [draft.count]:
            raise ValueError(f"{draft.count} sections of a state, not {values}")
        draft.ended = True
    elif name in _READERS:
        _READERS[name](draft, values)
    elif draft.count:
        draft.parts.setdefault(_text(name), []).extend(values)
    draft.count += 1


def _read_clock(draft: _Draft, values: Section) -> None:
    store_timestamp_ms, topics_version, topics_changed_ms = map(_natural, values)
    draft.clock = store_timestamp_ms, topics_version, topics_changed_ms


def _read_topics(draft: _Draft, rows: Section) -> None:
    for row in rows:
        topic = msgspec.convert(dict(zip(Topic.__slots__, row, strict=True)), Topic)
        draft.topics[_text(topic.name)] = topic


def _read_groups(draft: _Draft, rows: Section) -> None:
    for name, config in rows:
        draft.groups[_text(name)] = dict(config)


def _read_queues(draft: _Draft, rows: Section) -> None:
    for topic, queue_id, end in rows:
        draft.next_offsets[_text(topic), _natural(queue_id)] = _natural(end)


def _read_offsets(draft: _Draft, rows: Section) -> None:
    for group, topic, queue_id, offset in rows:
        draft.consumer_offsets[_text(group), _text(topic), _natural(queue_id)] = _natural(offset)


def _read_delays(draft: _Draft, rows: Section) -> None:
    for queue_id, offset in rows:
        draft.delay_offsets[_natural(queue_id)] = _natural(offset)


def _read_marks(draft: _Draft, values: Section) -> None:
    positions, times_ms = map(_unpacked_array, values)
    draft.time_marks = positions, times_ms


def _read_halves(draft: _Draft, values: Section) -> None:
    (draft.half_next_offset,) = map(_natural, values)


def _read_undecided(draft: _Draft, rows: Section) -> None:
    for row in rows:
        draft.undecided.append(Half(*map(_natural, row)))


def _decided_reader(name: str) -> Callable[[_Draft, Section], None]:
    def read(draft: _Draft, rows: Section) -> None:
        decided = getattr(draft, name)
        for offset, decision in rows:
            decided[_natural(offset)] = DECISIONS[_natural(decision)]

    return read


def _read_window(draft: _Draft, values: Section) -> None:
    name, memory_floor_ms = values
    draft.window = draft.windows[name] = _WindowDraft(_natural(memory_floor_ms))


def _read_epoch(draft: _Draft, _: Section) -> None:
    _window_of(draft).epochs.append([])


def _read_generation(draft: _Draft, values: Section) -> None:
    _window_of(draft).epochs[-1].append(_generation(values))


def _read_newest(draft: _Draft, values: Section) -> None:
    _window_of(draft).newest = _generation(values)


_READERS: Final[dict[str, Callable[[_Draft, Section], None]]] = {
    "clock": _read_clock,
    "topics": _read_topics,
    "groups": _read_groups,
    "queues": _read_queues,
    "offsets": _read_offsets,
    "delays": _read_delays,
    "marks": _read_marks,
    "halves": _read_halves,
    "undecided": _read_undecided,
    "decided": _decided_reader("decided"),
    "decided_before": _decided_reader("decided_before"),
    "window": _read_window,
    "epoch": _read_epoch,
    "generation": _read_generation,
    "newest": _read_newest,
}


def _finished(draft: _Draft) -> StateImage:
    if not draft.ended or draft.clock is None or draft.time_marks is None:
        raise ValueError("a state that is cut short")
    store_timestamp_ms, topics_version, topics_changed_ms = draft.clock
    return StateImage(
        store_timestamp_ms=store_timestamp_ms,
        topics_version=topics_version,
        topics_changed_ms=topics_changed_ms,
        topics=draft.topics,
        groups=draft.groups,
        next_offsets=draft.next_offsets,
        consumer_offsets=draft.consumer_offsets,
        delay_offsets=draft.delay_offsets,
        time_marks=draft.time_marks,
        halves=HalfImage(
            next_offset=_natural(draft.half_next_offset),
            undecided=draft.undecided,
            decided=draft.decided,
            decided_before=draft.decided_before,
        ),
        messages=draft.windows["messages"].image(),
        half_keys=draft.windows["half_keys"].image(),
        parts=draft.parts,
    )


def _window_of(draft: _Draft) -> _WindowDraft:
    if draft.window is None:
        raise ValueError("a dedupe generation without a window")
    return draft.window


def _generation(values: Section) -> Generation:
    first_ms, last_ms, hashes, positions = values
    generation = Generation(
        first_ms=_natural(first_ms),
        last_ms=_natural(last_ms),
        hashes=_unpacked_array(hashes),
        positions=None if positions is None else _unpacked_array(positions),
    )
    if generation.positions is not None and len(generation.positions) != len(generation.hashes):
        raise ValueError("a dedupe generation with positions for other keys")
    return generation


def _unpacked_array(packed: bytes) -> array[int]:
    values = array("Q")
    values.frombytes(packed)
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no whole number of at least 0")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
