"""What the simulator has found in the core, each as the shortest case that shows it."""

from __future__ import annotations

import random

from raft.config import RaftConfig
from raft.core import Core
from raft.events import Receive, Tick
from raft.messages import AppendEntries, AppendEntriesReply, HardState, NodeId
from tests.raft.core_group import MemoryStorage, make_entries

_NODES = (NodeId("n0"), NodeId("n1"), NodeId("n2"))


def _core(terms: list[int], hard_state: HardState) -> Core:
    config = RaftConfig(node_id=_NODES[0], voters=_NODES)
    return Core(config, MemoryStorage(make_entries(terms)), hard_state, random.Random(1), 0)


def test_a_log_newer_than_the_hard_state_sets_the_term() -> None:
    """Un-fsynced entries of term 5 survived a crash, the hard state of their Ready did not."""
    core = _core([1, 5], HardState(current_term=4, voted_for=_NODES[1]))
    assert (core.current_term, core.voted_for) == (5, None)
    ready = core.step(Tick(now_ms=0))
    assert ready.hard_state == HardState(current_term=5, voted_for=None)


def test_a_refusal_of_an_earlier_term_confirms_no_read() -> None:
    """Its sender may lead the current term by now, with read rounds of its own."""
    core = _core([], HardState(current_term=8, voted_for=None))
    stale = AppendEntries(
        sender=_NODES[1],
        receiver=_NODES[0],
        term=4,
        prev_log_index=0,
        prev_log_term=0,
        entries=(),
        leader_commit=0,
        read_round=40,
    )
    ready = core.step(Receive(now_ms=1, message=stale))
    replies = [*ready.messages, *ready.messages_after_sync]
    assert len(replies) == 1
    assert isinstance(replies[0], AppendEntriesReply)
    assert (replies[0].term, replies[0].success, replies[0].read_round) == (8, False, 0)
