"""What the simulator has found, each as the shortest case that shows it."""

from __future__ import annotations

import random
from pathlib import Path

from chaos.sim.machine.disk import SimDisk, Survival
from raft.config import RaftConfig
from raft.core.core import Core
from raft.events import Receive, Tick
from raft.messages import AppendEntries, AppendEntriesReply, HardState, NodeId
from raft.node.node_config import NodeConfig
from raft.store.node_store import NodeStore
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


def test_a_store_starts_with_entries_whose_hard_state_a_failure_of_power_took(
    tmp_path: Path,
) -> None:
    """They were written and never fsynced, and nobody was told of their term: it is entered."""
    config = NodeConfig(
        group="g",
        raft=RaftConfig(node_id=_NODES[0], voters=_NODES),
        peers=dict.fromkeys(_NODES, "127.0.0.1:1"),
        listen="127.0.0.1:0",
        store=tmp_path,
        secret=bytes(32),
    )
    disk = SimDisk(random.Random(1))
    store = NodeStore(config, disk)
    store.hard_state_file.save(HardState(current_term=1, voted_for=_NODES[1]))
    first, second = make_entries([1, 2])
    store.log.append([first])
    store.log.sync()
    store.log.append([second])
    store.close()
    disk.power_failure(Survival.ALL)
    again = NodeStore(config, disk)
    assert again.hard_state == HardState(current_term=2, voted_for=None)
    assert again.log.last_term == 2
    again.close()
