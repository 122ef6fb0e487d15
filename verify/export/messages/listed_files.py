"""The files of replica stores by their names alone, of our stores and RocketMQ's.

Place in the data path: `verify.export.store_files` and `verify.export.rocketmq.store_files` sort
with it what the manifest lists; nothing is opened here.

Invariant: topics and queues come from listed names, so that nothing stored in a log becomes part of
a path.

Source: docs/FORMATS.md section 5; RocketMQ's StorePathConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from verify.export.messages.queue_units import UNIT_SIZE_BYTES, QueueFile

__all__ = ["POSITION_MAX", "files_by_store", "position_of", "queue_files_of"]

POSITION_MAX: Final = (1 << 63) - 1
_NAME_DIGITS: Final = 20
_QUEUE_MAX: Final = (1 << 31) - 1


def files_by_store(
    run: Path, listed: Iterable[str]
) -> list[tuple[str, str, dict[tuple[str, ...], Path]]]:
    """Return (group, node, its files by the parts of their names), in order.

    `listed`: names relative to `run`, as in the manifest's table `nodes`.
    """
    files: dict[tuple[str, str], dict[tuple[str, ...], Path]] = {}
    for name in sorted(listed):
        top, *place = name.split("/")
        if top == "nodes" and len(place) > 2:
            group, node, *rest = place
            files.setdefault((group, node), {})[tuple(rest)] = run / name
    return [(group, node, of_store) for (group, node), of_store in sorted(files.items())]


def position_of(name: str) -> int | None:
    """Parse a file name of 20 digits; None if it is not such a name, or too large."""
    if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdecimal()):
        return None
    position = int(name)
    return position if position <= POSITION_MAX else None


def queue_files_of(files: Mapping[tuple[str, ...], Path]) -> tuple[QueueFile, ...]:
    """Return the ConsumeQueue files among those of a store."""
    found = []
    for parts, path in files.items():
        match parts:
            case ("consumequeue", topic, queue, name) if (first := position_of(name)) is not None:
                if queue.isascii() and queue.isdecimal() and int(queue) <= _QUEUE_MAX:
                    offset = first // UNIT_SIZE_BYTES
                    found.append(
                        QueueFile(topic=topic, queue=int(queue), first_offset=offset, path=path)
                    )
    return tuple(found)
