"""RaftConfig names the field that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from raft.config import RaftConfig
from tests.raft.core_group import node_names


def test_defaults_are_valid() -> None:
    config = RaftConfig(node_id=node_names(1)[0], voters=node_names(3))
    assert config.election_timeout_ms_max < 1000


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"node_id": ""}, "node_id is empty"),
        ({"voters": ()}, "voters: 0 names"),
        ({"voters": node_names(8)}, "voters: 8 names"),
        ({"voters": ("n1", "n1")}, "voters: a name is empty or stands twice"),
        ({"voters": ("n1", "")}, "voters: a name is empty or stands twice"),
        ({"heartbeat_ms": 0}, "heartbeat_ms: 0"),
        ({"heartbeat_ms": 101}, "election_timeout_ms_min: 300 is below three times"),
        ({"election_timeout_ms_max": 299}, "election_timeout_ms_min: 300 is above"),
        ({"campaign_delay_ms_min": 61}, "campaign_delay_ms_min: 61 is above"),
        ({"campaign_delay_ms_min": -1}, "campaign_delay_ms_min: -1"),
        ({"commit_notice_delay_ms": -1}, "commit_notice_delay_ms: -1"),
        ({"entry_size_bytes_max": 0}, "entry_size_bytes_max: 0"),
        ({"append_count_max": 0}, "append_count_max: 0"),
        ({"inflight_count_max": 0}, "inflight_count_max: 0"),
        ({"read_requests_count_max": 0}, "read_requests_count_max: 0"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], named: str) -> None:
    fields: dict[str, Any] = {"node_id": "n1", "voters": node_names(3), **change}
    with pytest.raises(ValueError, match=named):
        RaftConfig(**fields)
