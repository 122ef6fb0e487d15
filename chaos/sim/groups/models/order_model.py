"""Messages popped in order, by the committed log.

Place in the data path: `pop_model` hands it POP's commands that are in order, `client_checker`
queries it about consumers' answers. It does not read the broker's table.

Rules: a group gets nothing of a queue while a message it was given before is neither done nor
visible again, unless the same attempt repeats; it goes on at the first message that is not done,
skips none that its log still has, and never gets again what is done together with all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.entry.pop_commands import AckOrderCommand, ChangeInvisibleCommand, PopOrderCommand
from chaos.sim.groups.models.stored import Stored
from chaos.sim.machine.violation import Violation

__all__ = ["OrderModel"]

_Key: TypeAlias = tuple[str, str, int]  # group, topic, queue id


@dataclass(slots=True)
class _Given:
    """The messages of a queue that the group was given last."""

    attempt_id: str
    pop_ms: int
    visible_ms: dict[int, int]  # of each offset
    done: set[int] = field(default_factory=set)

    @property
    def next_offset(self) -> int:
        left = [offset for offset in self.visible_ms if offset not in self.done]
        return min(left) if left else max(self.visible_ms) + 1


class OrderModel:
    """The ordered pops of one broker group. Methods raise Violation."""

    def __init__(
        self,
        queues: Mapping[tuple[str, int], Sequence[Stored]],
        offsets: Mapping[_Key, int],
        floors: Mapping[tuple[str, int], int],
        counts: dict[str, int],
        log_begin: Callable[[], int],
    ) -> None:
        self._queues = queues
        self._offsets = offsets
        self._floors = floors
        self._counts = counts
        self._log_begin = log_begin
        self._given: dict[_Key, _Given] = {}
        self._ever: set[tuple[_Key, int, int]] = set()  # with offset and pop time

    def rows(self) -> set[tuple[_Key, int, tuple[int, ...], tuple[int, ...]]]:
        """Return for each queue its key, pop time, offsets, and those that are done."""
        return {
            (key, given.pop_ms, tuple(given.visible_ms), tuple(sorted(given.done)))
            for key, given in self._given.items()
        }

    def has_given(self, key: _Key, offset: int, pop_ms: int) -> bool:
        """Return whether the message is or was given under this handle."""
        return (key, offset, pop_ms) in self._ever

    def is_open(self, key: _Key, offset: int, pop_ms: int) -> bool:
        """Return whether the message is given under this handle now, and not done."""
        given = self._given.get(key)
        return (
            given is not None
            and given.pop_ms == pop_ms
            and offset in given.visible_ms
            and offset not in given.done
        )

    # Changes; each returns the group's offset from now on, or None where it stays ---------------

    def pop(self, command: PopOrderCommand) -> int | None:
        key = (command.group, command.topic, command.queue_id)
        before = self._offsets.get(key, -1)
        floor = self._floors.get((command.topic, command.queue_id), 0)
        if before != command.expected or command.start + 1 <= floor:
            return None  # void
        self._check_free(key, command)
        self._check_passed(key, command, max(before, floor))
        visible_ms = command.pop_ms + command.invisible_ms
        self._given[key] = _Given(
            command.attempt_id, command.pop_ms, dict.fromkeys(command.offsets, visible_ms)
        )
        self._ever |= {(key, offset, command.pop_ms) for offset in command.offsets}
        self._counts["messages_popped_in_order"] += len(command.offsets)
        return command.start

    def _check_free(self, key: _Key, command: PopOrderCommand) -> None:
        given = self._given.get(key)
        if given is None or (given.attempt_id and given.attempt_id == command.attempt_id):
            return
        held = [
            offset
            for offset, visible_ms in given.visible_ms.items()
            if offset not in given.done and visible_ms > command.pop_ms
        ]
        if held:
            raise Violation(
                "G5", f"{key}: {command.offsets} are popped in order while {held} are held"
            )

    def _check_passed(self, key: _Key, command: PopOrderCommand, begin: int) -> None:
        queue = self._queues[key[1], key[2]]
        if any(not begin <= offset < len(queue) for offset in command.offsets):
            raise Violation("G5", f"{key}: {command.offsets} are popped of {begin} to {len(queue)}")
        passed = set(range(begin, command.offsets[-1])) - set(command.offsets)
        log_begin = self._log_begin() if passed else 0
        for offset in sorted(passed):
            if queue[offset].position >= log_begin:
                raise Violation("G5", f"{key}: a pop in order passes over {offset}")

    def ack(self, command: AckOrderCommand) -> int | None:
        key = (command.group, command.topic, command.queue_id)
        given = self._given.get(key)
        if (
            given is None
            or given.pop_ms != command.pop_ms
            or command.offset not in given.visible_ms
        ):
            self._counts["acknowledgements_void"] += 1
            return None
        given.done.add(command.offset)
        self._counts["messages_acknowledged_in_order"] += 1
        if len(given.done) == len(given.visible_ms):
            del self._given[key]
        return given.next_offset

    def change(self, command: ChangeInvisibleCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        given = self._given.get(key)
        if given is None or given.pop_ms != command.pop_ms:
            return
        if command.offset in given.visible_ms:
            given.visible_ms[command.offset] = command.visible_ms

    def drop(self, unwanted: Callable[[_Key], bool]) -> None:
        """Drop the state of a topic, group or queue position that no longer exists."""
        self._given = {key: given for key, given in self._given.items() if not unwanted(key)}
