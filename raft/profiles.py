"""Named sets of times for a Raft group: how soon it detects a failure, and how calmly it judges.

Place in the data path: `[raft] profile` of a broker's configuration names one; single times beside
it take precedence. `lan` has the defaults of `raft.config`.

lan     any LAN, shared machines, a process that may be stalled for a quarter of a second; a silent
        leader (cut off, paused) is replaced within 0.3 to 0.6 s and a little
fast    quiet machines, a network within a rack, disks that sync within 10 ms; replaced within 0.12
        to 0.25 s and a little, and a leader that is stalled for as long is deposed needlessly

A killed leader is detected by its broken connections, whatever the profile.

Source: Raft 5.6 (broadcast time << election timeout << time between failures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["PROFILES", "Profile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Times, with the meanings of the fields of `raft.config.RaftConfig`."""

    heartbeat_ms: int
    election_timeout_ms_min: int
    election_timeout_ms_max: int
    campaign_delay_ms_min: int
    campaign_delay_ms_max: int


PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        "lan": Profile(
            heartbeat_ms=75,
            election_timeout_ms_min=300,
            election_timeout_ms_max=600,
            campaign_delay_ms_min=10,
            campaign_delay_ms_max=60,
        ),
        "fast": Profile(
            heartbeat_ms=30,
            election_timeout_ms_min=120,
            election_timeout_ms_max=250,
            campaign_delay_ms_min=5,
            campaign_delay_ms_max=30,
        ),
    }
)
