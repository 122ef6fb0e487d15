"""Replicas with the same log that differ in anything are told apart."""

from __future__ import annotations

import pytest

from broker.state.state import BrokerState, StateLimits
from chaos.sim.groups.replicas import check_alike
from chaos.sim.machine.violation import Violation
from raft.messages import NodeId

_N0, _N1 = NodeId("n0"), NodeId("n1")


def _state() -> BrokerState:
    state = BrokerState(StateLimits(), {})
    state.messages.add(["key"], [64], 1_000)
    return state


def test_a_restored_state_is_like_the_original() -> None:
    original, restored = _state(), BrokerState(StateLimits(), {})
    restored.restore(original.capture())
    check_alike({_N0: original.capture(), _N1: restored.capture()})


def test_a_key_that_one_has_forgotten_is_seen() -> None:
    other = _state()
    other.messages.add(["another"], [128], 1_000)
    with pytest.raises(Violation, match="replicas: n1 has other messages than n0"):
        check_alike({_N0: _state().capture(), _N1: other.capture()})
