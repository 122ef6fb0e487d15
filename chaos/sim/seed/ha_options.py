"""Everything that the seed of a master and its slaves decides before it starts.

Place in the data path: `chaos.sim.ha.cluster` draws one `HaOptions` per seed and gives its parts to
machines, network, nemesis and clients. A replay prints every field. Faults and times are those of
whole groups (`group_options`), whose unit is an election timeout: nobody is elected here, and it is
no more than a unit.

Source: Groce et al., "Swarm testing" (ISSTA '12), as `chaos.sim.seed.core_options`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from chaos.sim.seed.group_options import GROUP_FAULTS
from chaos.sim.seed.schedule import Schedule, draw_schedule
from chaos.sim.seed.seed_options import SeedOptions

__all__ = ["HA_CALMABLE", "HA_FAULTS", "HaOptions", "draw_ha_options", "ha_schedule"]

_OF_GROUPS: Final = (
    "crash_process",
    "crash_power",
    "crash_leader",
    "crash_all",
    "crash_at_step",
    "crash_at_disk_operation",
    "stop_cleanly",
    "stop_midway",
    "pause",
    "pause_leader",
    "isolate",
    "isolate_leader",
    "one_way",
    "one_way_leader",
    "reset_link",
    "reset_node",
    "slow_link",
    "slow_disk",
    "disk_error",
    "fill_disk",
    "no_room",
    "cut_client",
    "crash_client",
    "cut_name_server",
)
_COMMON: dict[str, tuple[float, float]] = {
    **{name: GROUP_FAULTS[name] for name in _OF_GROUPS},
    "wipe_slave": (0.3, 0.4),
}
_OF_MASTERS: dict[str, tuple[float, float]] = {
    "wipe_master": (0.5, 0.5),
    "change_master": (0.5, 0.5),
    "lose_tail_at_rest": (0.8, 0.5),
}
_OF_DISKS: dict[str, tuple[float, float]] = {
    "rot_at_rest": (0.7, 0.6),
    "fail_sync_and_power": (0.7, 0.6),
}
_OF_RETENTION: dict[str, tuple[float, float]] = {"starve_slave": (1.0, 1.0)}
HA_FAULTS: dict[str, tuple[float, float]] = {
    **_COMMON,
    **_OF_MASTERS,
    **_OF_DISKS,
    **_OF_RETENTION,
}
"""Weight with which each fault is drawn into a seed, and its highest rate per 10 units of time."""

HA_CALMABLE = (
    "held_survive_rate",
    "opening_failure_rate",
    "short_write_rate",
    "garbage_rate",
    "clock_rate_spread",
    "timer_lateness_us_max",
)
"""Permanent faults, as far as drawn, which can be switched off while shrinking."""

_MASTERS_CHANGE_RATE: Final = 0.25  # share of seeds in which a master may be lost or changed
_DISKS_LIE_RATE: Final = 0.3  # share of seeds in which a disk loses what it has, or had claimed
_TAIL_LOST_RATE: Final = 0.3
_STARVED_RATE: Final = 0.5  # share of seeds with retention and two slaves whose one lags behind
_ONE_SLAVE: Final = 2  # nodes
_FOCUSED_EVERY: Final = 3  # of so many seeds, one has few kinds of faults, each often


@dataclass(frozen=True, slots=True, kw_only=True)
class HaOptions(SeedOptions):
    """The options of one seed. Times have their unit in their names."""

    waits_for_slaves: bool
    """Engine sync; else async."""
    waits_for_disk: bool
    """Flush sync; else async."""
    in_sync_replicas: int
    slave_timeout_ms: int
    sync_flush_timeout_ms: int
    log_size_bytes_max: int
    """Size of the log above which the oldest files are deleted; 0: it is kept whole."""
    snapshot_interval_size_bytes: int
    producer_count: int
    consumer_count: int
    send_interval_ms: int
    body_size_max: int
    again_rate: float
    """Share of sends without SEND_OK that are sent again with their UNIQ_KEY."""
    turn_mix_rate: float
    """Share of proposals beside which others stand in the same turn of the loop."""
    makes_slave_master: bool
    """Whether a slave is made the master at the end, where the master has lost its log; else the
    slaves are given its new one."""
    is_of_one_size: bool
    """Whether all bodies are of `body_size_max`, so that entries replace others of their size."""
    loses_tail_at_end: bool
    """Whether the master loses at the end what it has not fsynced, with nothing written behind it
    until its slaves, which are ahead of it then, have its log again."""
    quiet_ms: int
    """How long the group is left alone at the end."""

    @property
    def engine(self) -> str:
        return "sync" if self.waits_for_slaves else "async"

    @property
    def flush(self) -> str:
        return "sync" if self.waits_for_disk else "async"


def draw_ha_options(seed: int, node_count: int) -> HaOptions:
    """Draw the options; the same seed and number of nodes give the same options."""
    rng = random.Random(f"ha options/{seed}/{node_count}")
    unit_ms = rng.choice((300, 600, 1_200))
    delay_max_us = int(unit_ms * 1000 * rng.choice((0.002, 0.01, 0.05)))
    sync_max_us = int(unit_ms * 1000 * rng.choice((0.005, 0.02, 0.2)))
    options = HaOptions(
        seed=seed,
        node_count=node_count,
        fault_time_us=int(unit_ms * 1000 * rng.uniform(20, 40)),
        fault_rates=_with_rare_faults(_draw_rates(rng, seed), seed),
        heartbeat_ms=unit_ms // 4,
        election_timeout_ms_min=unit_ms,
        election_timeout_ms_max=2 * unit_ms,
        segment_size_bytes_max=rng.choice((8_192, 8_192, 32_768, 1 << 20)),
        log_size_bytes_max=rng.choice((0, 0, 40_000)),
        snapshot_interval_size_bytes=rng.choice((6_000, 20_000, 1 << 30)),
        link_delay_us_min=rng.choice((50, delay_max_us // 2)),
        link_delay_us_max=max(200, delay_max_us),
        held_survive_rate=rng.choice((0.0, 0.5, 1.0)),
        sync_us_min=rng.choice((20, 200, sync_max_us // 2)),
        sync_us_max=max(300, sync_max_us),
        short_write_rate=rng.choice((0.0, 0.0, 0.05)),
        garbage_rate=rng.choice((0.0, 0.0, 0.3)),
        clock_rate_spread=rng.choice((0.0, 0.01, 0.05)),
        timer_lateness_us_max=rng.choice((0, 1_000, 10_000)),
        restart_us_max=int(unit_ms * 1000 * rng.choice((0.1, 1.0, 4.0))),
        opening_failure_rate=rng.choice((0.1, 0.1, 0.5)),
        fault_duration_us_max=int(unit_ms * 1000 * rng.choice((2.0, 5.0, 8.0, 20.0))),
        waits_for_slaves=rng.random() < 0.6,
        waits_for_disk=rng.random() < 0.5,
        in_sync_replicas=rng.randint(2, max(2, node_count)),
        slave_timeout_ms=rng.choice((100, 3_000, 12_000)),
        sync_flush_timeout_ms=rng.choice((50, 200, 5_000)),
        producer_count=rng.choice((1, 2)),
        consumer_count=rng.choice((1, 2)),
        send_interval_ms=int(unit_ms * rng.choice((0.1, 0.25, 1.0))),
        body_size_max=rng.choice((20, 200, 1_500)),
        again_rate=rng.choice((0.3, 0.9)),
        quiet_ms=rng.choice((6_000, 6_000, 30_000)),
        turn_mix_rate=rng.choice((0.0, 0.1, 0.4)),
        is_of_one_size=rng.random() < 0.4,
        makes_slave_master=rng.random() < 0.6,
        loses_tail_at_end=random.Random(f"ha end/{seed}").random() < _TAIL_LOST_RATE,
    )
    return _with_starved_slaves(options)


def _with_starved_slaves(options: HaOptions) -> HaOptions:
    """In a share of the seeds with retention, let the log grow far beyond it while a slave lags."""
    rng = random.Random(f"ha retention/{options.seed}")
    may_starve = options.log_size_bytes_max and options.node_count > _ONE_SLAVE
    if not (may_starve and options.fault_rates and rng.random() < _STARVED_RATE):
        return options
    rates = {name: high * rng.uniform(0.4, 1.0) for name, (_, high) in _OF_RETENTION.items()}
    return replace(
        options,
        fault_rates={**options.fault_rates, **rates},
        segment_size_bytes_max=8_192,
        log_size_bytes_max=rng.choice((16_000, 40_000)),
        snapshot_interval_size_bytes=6_000,
        in_sync_replicas=_ONE_SLAVE,
        send_interval_ms=options.election_timeout_ms_min // 10,
        body_size_max=1_500,
    )


def _draw_rates(rng: random.Random, seed: int) -> dict[str, float]:
    if rng.random() < 0.03:
        return {}  # a calm seed: nothing may go wrong without a reason either
    names = list(_COMMON)
    if seed % _FOCUSED_EVERY == 0:
        first = names[seed // _FOCUSED_EVERY % len(names)]
        chosen = [first, *rng.sample(names, rng.choice((0, 1, 2)))]
        return {name: rng.choice((2.0, 4.0, 6.0)) for name in chosen}
    intensity = rng.choice((0.5, 1.0, 2.0))
    rates = {
        name: rate_max * intensity * (0.2 + 0.8 * rng.random())
        for name, (weight, rate_max) in _COMMON.items()
        if rng.random() < weight
    }
    total, total_max = sum(rates.values()) or 1.0, rng.choice((2.0, 4.0, 8.0))
    return {name: rate * min(1.0, total_max / total) for name, rate in rates.items()}


def _with_rare_faults(rates: dict[str, float], seed: int) -> dict[str, float]:
    """Add what happens to masters alone, or to disks alone, each in a share of the seeds, often
    enough to happen once."""
    if not rates:
        return rates
    found = dict(rates)
    for key, share, faults in (
        ("ha masters", _MASTERS_CHANGE_RATE, _OF_MASTERS),
        ("ha disks", _DISKS_LIE_RATE, _OF_DISKS),
    ):
        rng = random.Random(f"{key}/{seed}")
        if rng.random() < share:
            found |= {
                name: rate_max * rng.uniform(0.4, 1.0)
                for name, (weight, rate_max) in faults.items()
                if rng.random() < weight
            }
    return found


def ha_schedule(options: HaOptions) -> Schedule:
    """Draw the faults of a seed; rates are per 10 units of time."""
    rng = random.Random(f"ha schedule/{options.seed}/{options.node_count}")
    return draw_schedule("ha", options, rng)
