"""All faults by name: what `ledgermq chaos faults` prints and scenarios refer to.

Invariant: a fault's name is the key and stands in one row.

May import: `chaos.nemesis`, `chaos.nemesis.failpoint`, `chaos.nemesis.member`,
  `chaos.nemesis.network`, `chaos.nemesis.process`, `chaos.nemesis.setting`,
  `chaos.nemesis.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from chaos.nemesis.base import FaultSpec
from chaos.nemesis.failpoint import armed_points, power_failures, wrong_clocks
from chaos.nemesis.member import member_changes
from chaos.nemesis.network import (
    client_cuts,
    frame_faults,
    moving_cuts,
    name_server_cuts,
    one_way_cut,
    packets,
    partitions,
    slow_links,
    streams,
)
from chaos.nemesis.process import downed, kill_at_work, limits, paused, restarts
from chaos.nemesis.setting import older_release, setting_changes
from chaos.nemesis.store import lost_machines, rotten_files, swapped_disks

__all__ = ["CATALOGUE"]


def _by_name(*groups: tuple[FaultSpec, ...]) -> Mapping[str, FaultSpec]:
    specs = [spec for group in groups for spec in group]
    by_name = {spec.name: spec for spec in specs}
    assert len(by_name) == len(specs), "a name stands in two rows"
    return MappingProxyType(by_name)


CATALOGUE: Final[Mapping[str, FaultSpec]] = _by_name(
    armed_points.SPECS,
    power_failures.SPECS,
    wrong_clocks.SPECS,
    partitions.SPECS,
    one_way_cut.SPECS,
    client_cuts.SPECS,
    name_server_cuts.SPECS,
    moving_cuts.SPECS,
    slow_links.SPECS,
    streams.SPECS,
    frame_faults.SPECS,
    packets.SPECS,
    downed.SPECS,
    paused.SPECS,
    restarts.SPECS,
    kill_at_work.SPECS,
    limits.SPECS,
    rotten_files.SPECS,
    swapped_disks.SPECS,
    lost_machines.SPECS,
    member_changes.SPECS,
    setting_changes.SPECS,
    older_release.SPECS,
)
