"""The named sets of times."""

from __future__ import annotations

import dataclasses

import pytest

from raft.config import RaftConfig
from raft.messages import NodeId
from raft.profiles import PROFILES


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_makes_a_valid_configuration(name: str) -> None:
    times = dataclasses.asdict(PROFILES[name])
    config = RaftConfig(node_id=NodeId("a"), voters=(NodeId("a"),), **times)
    assert config.heartbeat_ms == times["heartbeat_ms"]


def test_the_default_is_the_configurations_own() -> None:
    config = RaftConfig(node_id=NodeId("a"), voters=(NodeId("a"),))
    for field, value in dataclasses.asdict(PROFILES["lan"]).items():
        assert getattr(config, field) == value, field


def test_fast_replaces_a_silent_leader_in_less_than_half_the_time() -> None:
    lan, fast = PROFILES["lan"], PROFILES["fast"]
    assert 2 * fast.election_timeout_ms_max < lan.election_timeout_ms_max
