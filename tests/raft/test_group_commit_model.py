"""Rounds of fsync against a list: no message leaves before what was wanted ahead of it is durable.

In any order of what nodes want made durable, of messages given behind it, of begun rounds, and of
their steps as the disk carries them out, all of them on a thread or what it can in the kernel. The
model remembers, of each message, the hard state and
the end of the log that were wanted before it.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.machine.disk import SimDisk, Survival
from raft.log.hard_state import HardStateFile
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind, HardState, NodeId, TimeoutNow
from raft.node.group_commit import GroupCommit, SyncRound

_STEPS = st.lists(
    st.sampled_from(["term", "entry", "message", "message", "begin", "step", "step", "step"]),
    max_size=60,
)


class _Given(NamedTuple):
    message: TimeoutNow
    term: int  # of the hard state that is to be durable before
    last_index: int  # of the log that is


class _World:
    def __init__(self, *, in_kernel: bool) -> None:
        self.disk = SimDisk(random.Random(1))
        self.file = HardStateFile(self.disk)
        self.log = SegmentLog(self.disk, "commitlog", hard_state=self.file)
        self.rounds = GroupCommit(self.log, self.file, self.on_done, self.carry_out)
        self.steps: list[Callable[[], object]] = []
        self.done: Callable[[BaseException | None], None] | None = None
        self.wanted_term = 0
        self.given: list[_Given] = []
        self.left: list[TimeoutNow] = []
        self.durable_term = self.durable_index = 0
        self.kernel_syncs = 0
        if in_kernel:
            self.disk.kernel = self
            self.log.begins_syncs = True

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """See `chaos.sim.machine.disk.Kernel`."""
        self.kernel_syncs += 1
        self.carry_out([work], lambda _: report())

    def report_soon(self, report: Callable[[], None]) -> None:
        """Nothing here waits for the disk."""
        raise AssertionError

    def carry_out(
        self,
        steps: Sequence[Callable[[], object]],
        done: Callable[[BaseException | None], None],
    ) -> None:
        assert self.done is None, "one round at a time"
        self.steps, self.done = list(steps), done

    def on_done(self, work: SyncRound, error: BaseException | None) -> None:
        assert error is None
        for message in work.messages:
            assert isinstance(message, TimeoutNow)
            self.leave(message)

    # Steps -------------------------------------------------------------------------------------

    def term(self) -> None:
        self.wanted_term += 1
        state = HardState(current_term=self.wanted_term, voted_for=NodeId("n1"))
        self.rounds.want_hard_state(state, own_vote=False)

    def entry(self) -> None:
        index = self.log.last_index + 1
        self.log.append(
            [Entry(index=index, term=self.wanted_term, kind=EntryKind.NOOP, payload=b"")]
        )
        self.rounds.want_log()

    def message(self) -> None:
        message = TimeoutNow(sender=NodeId("n1"), receiver=NodeId("n2"), term=len(self.given))
        self.given.append(_Given(message, self.wanted_term, self.log.last_index))
        if not self.rounds.defer([message]):
            self.leave(message)

    def begin(self) -> None:
        self.rounds.begin()

    def step(self) -> None:
        if self.steps:
            self.steps.pop(0)()
            self.look_at_disk()
        elif self.done is not None:
            done, self.done = self.done, None
            done(None)

    # What is so --------------------------------------------------------------------------------

    def look_at_disk(self) -> None:
        """What a failure of power would leave, on a copy of the disk."""
        # What is under way in the kernel ends with the power.
        left_out: dict[int, object] = {id(self): None, id(self.disk._kernel_syncs): []}
        disk = copy.deepcopy(self.disk, left_out)
        disk.power_failure(Survival.NONE)
        hard_state = HardStateFile(disk)
        hard_state.load()
        self.durable_term = hard_state.durable_term
        self.durable_index = SegmentLog(disk, "commitlog", hard_state=hard_state).last_index

    def leave(self, message: TimeoutNow) -> None:
        given = self.given[len(self.left)]
        assert given.message == message, "in the order in which they were given"
        assert given.term <= self.durable_term, "its hard state is not durable"
        assert given.last_index <= self.durable_index, "its entries are not durable"
        self.left.append(message)


@settings(deadline=None, max_examples=300)
@given(_STEPS, st.booleans())
def test_no_message_leaves_before_what_was_wanted_ahead_of_it_is_durable(
    steps: list[str], in_kernel: bool
) -> None:
    asyncio.run(_run(steps, in_kernel=in_kernel))


def test_the_kernel_has_its_share() -> None:
    world = asyncio.run(_run(["term", "entry", "message", "entry", "message"], in_kernel=True))
    assert world.kernel_syncs == 0, "a hard state was wanted"
    world = asyncio.run(_run(["entry", "message", "begin", "entry", "message"], in_kernel=True))
    assert world.kernel_syncs == 2


async def _run(steps: list[str], *, in_kernel: bool) -> _World:
    world = _World(in_kernel=in_kernel)
    for step in steps:
        getattr(world, step)()
    while world.done is not None or len(world.left) < len(world.given):
        world.begin()
        assert world.done is not None, "a message waits for no round"
        world.step()
    assert len(world.left) == len(world.given)
    return world
