"""Everything that the seed of a whole group decides before it starts.

Place in the data path: `cluster` draws one `GroupOptions` per seed and gives its parts to machines,
network, nemesis and clients. A replay prints every field. The times of Raft lie around the
product's defaults, those of transactions and retention are short beside the product's, so that they
happen within a seed.

Source: Groce et al., "Swarm testing" (ISSTA '12), as `chaos.sim.seed.core_options`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from chaos.sim.seed.schedule import Schedule, draw_schedule
from chaos.sim.seed.seed_options import SeedOptions

__all__ = ["GROUP_CALMABLE", "GROUP_FAULTS", "GroupOptions", "draw_group_options", "group_schedule"]

# Weight with which each fault is drawn into a seed, and its highest rate per 10 election timeouts.
GROUP_FAULTS: dict[str, tuple[float, float]] = {
    "crash_process": (0.45, 0.8),
    "crash_power": (0.5, 0.8),
    "crash_leader": (0.5, 1.0),
    "crash_all": (0.3, 0.3),
    "crash_at_step": (0.4, 1.0),
    "crash_at_disk_operation": (0.5, 1.2),
    "stop_cleanly": (0.4, 0.8),
    "stop_midway": (0.5, 1.0),
    "pause": (0.3, 0.6),
    "pause_leader": (0.4, 0.8),
    "isolate": (0.3, 0.6),
    "isolate_leader": (0.5, 1.0),
    "one_way": (0.4, 0.8),
    "one_way_leader": (0.4, 0.8),
    "bridge": (0.2, 0.4),
    "reset_link": (0.4, 1.5),
    "reset_node": (0.3, 0.8),
    "slow_link": (0.3, 0.6),
    "slow_disk": (0.3, 0.5),
    "disk_error": (0.5, 0.8),
    "transfer": (0.4, 0.8),
    "fill_disk": (0.4, 0.6),
    "no_room": (0.5, 0.8),
    "rot_disk": (0.4, 0.6),
    "replace_wiped": (0.5, 0.8),
    "cut_client": (0.5, 1.0),
    "crash_client": (0.6, 1.5),
    "crash_name_server": (0.3, 0.4),
    "cut_name_server": (0.3, 0.6),
    "wall_clock_jump": (0.3, 0.6),
    "garble_link": (0.3, 1.0),
    "garble_client": (0.3, 1.0),
}
_LATER_FAULTS: Final = ("garble_link", "garble_client")  # drawn by a generator of their own

_QUIET_MS: Final = (30_000, 6_000, 6_000, 6_000)  # the first is longer than a registration lasts

_FOCUSED_EVERY: Final = 3  # of so many runs of seeds, one is focused
_FOCUSED_RUN: Final = 4  # seeds; one in four is a whole group

GROUP_CALMABLE = (
    "held_survive_rate",
    "opening_failure_rate",
    "short_write_rate",
    "garbage_rate",
    "apply_us_max",
    "clock_rate_spread",
    "wall_clock_spread_ms",
    "wall_clocks_begin_wrong",
    "wall_clocks_jump_when_calm",
    "timer_lateness_us_max",
)
"""Permanent faults, as far as drawn, which can be switched off while shrinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions(SeedOptions):
    """The options of one seed. Times have their unit in their names."""

    name_server_count: int

    log_size_bytes_max: int
    """Size of the log above which the oldest segments are deleted; 0: it is kept whole."""

    apply_us_max: int
    """Longest delay between commit and apply of an entry, while there are faults."""

    wall_clock_spread_ms: int
    wall_clocks_begin_wrong: bool
    """Whether the clocks of a minority of the brokers are minutes or hours off from the start."""
    wall_clocks_jump_when_calm: bool
    """Whether, once the group is whole again, each broker's clock jumps an hour forth and back."""
    quiet_ms: int
    """How long the group is left alone at the end."""

    producer_count: int
    consumer_count: int
    send_interval_ms: int
    transaction_interval_ms: int
    body_size_max: int
    batch_rate: float
    delay_rate: float
    retry_rate: float
    """Share of sends of unknown outcome that are sent again with their UNIQ_KEY."""

    timer_rate: float
    """Share of sends, and of transactions, that ask for a time of delivery of their own."""
    recall_rate: float
    """Share of those that are recalled once they are acknowledged."""
    pop_consumer_count: int
    pop_invisible_ms_max: int
    deleter_count: int
    orderly_consumer_count: int
    """Number of consumers that share the queues of a topic by locks."""
    lock_owner_fails_when_calm: bool
    """Whether, in the calm end, an owner of locks dies or is paused until its leases have expired.
    """
    order_popper_count: int
    """Number of consumers that pop a topic in order."""
    stray_rate: float
    """Share of disks taken for lost that are started again once their member is replaced."""
    forwarded_rate: float
    """Share of client programs that pass for Java clients, whose requests followers forward."""
    admin_count: int
    """1: an administrator changes users and groups, resumes transactions, commits offsets oneway.
    """
    shaper_count: int
    """1: an administrator changes a topic's queues and permissions, and brokers' settings."""
    resetter_count: int
    """1: an administrator resets a group's offsets while its one consumer reads."""

    transaction_timeout_ms: int
    transaction_check_interval_ms: int
    transaction_check_max: int
    dedupe_window_ms: int
    dedupe_keys_max: int
    dedupe_evicted_keys_max: int

    @property
    def slowest_timeout_us(self) -> int:
        """The longest election timeout, on the slowest clock."""
        slowest = 1.0 + 2 * self.clock_rate_spread
        return int(self.election_timeout_ms_max * 1000 * slowest)


def draw_group_options(seed: int, node_count: int) -> GroupOptions:
    """Draw the options; the same seed and number of nodes give the same options."""
    options = _draw_mixed(seed, node_count)
    is_focused = seed // _FOCUSED_RUN % _FOCUSED_EVERY == 0
    return _focused(options) if is_focused else options


def _focused(options: GroupOptions) -> GroupOptions:
    """Restrict a seed to few kinds of faults, each as often as it can matter.

    States that only a close succession of them reaches are rare where many kinds are mixed. Each
    kind has its turn.
    """
    seed = options.seed
    rng = random.Random(f"focused group options/{seed}/{options.node_count}")
    timeout_ms = options.election_timeout_ms_min
    all_names = list(GROUP_FAULTS)
    names = [all_names[seed // (_FOCUSED_RUN * _FOCUSED_EVERY) % len(all_names)]]
    names += rng.sample(all_names, rng.choice((0, 1, 1, 2)))
    rates = {name: rng.choice((2.0, 4.0, 6.0)) for name in names}
    changes: dict[str, Any] = {
        "fault_rates": rates,
        "fault_time_us": int(timeout_ms * 1000 * rng.uniform(30, 60)),
        "opening_failure_rate": rng.choice((0.0, 0.1, 0.6)),
    }
    if rng.random() < 0.5:  # dead nodes are back before an election is over
        changes["restart_us_max"] = timeout_ms * 300
    if rng.random() < 0.5:  # a round of fsync is under way at any time
        changes["sync_us_min"] = timeout_ms * 50
        changes["sync_us_max"] = timeout_ms * 250
    if rng.random() < 0.2:
        changes["send_interval_ms"] = max(40, timeout_ms // 15)
    return replace(options, **changes)


def _draw_mixed(seed: int, node_count: int) -> GroupOptions:
    rng = random.Random(f"group options/{seed}/{node_count}")
    heartbeat_ms = rng.choice((75, 150, 250, 400, 400))
    timeout_min_ms = heartbeat_ms * 4
    delay_max_us = int(timeout_min_ms * 1000 * rng.choice((0.002, 0.01, 0.05)))
    sync_max_us = int(timeout_min_ms * 1000 * rng.choice((0.005, 0.02, 0.1)))
    send_interval_ms = int(timeout_min_ms * rng.choice((0.5, 1.0, 2.0)))
    # A generator of its own, so that options added later leave older seeds as they were.
    later = random.Random(f"later group options/{seed}/{node_count}")
    latest = random.Random(f"latest group options/{seed}/{node_count}")
    clocks = random.Random(f"clock group options/{seed}/{node_count}")
    shapes = random.Random(f"shapes/{seed}/{node_count}")
    applying = random.Random(f"applying/{seed}/{node_count}")
    ends = random.Random(f"ends/{seed}/{node_count}")
    return GroupOptions(
        seed=seed,
        node_count=node_count,
        name_server_count=rng.choice((1, 2)),
        fault_time_us=int(timeout_min_ms * 1000 * rng.uniform(20, 40)),
        fault_rates=_with_later(_with_jumps(_draw_faults(rng), clocks), seed, node_count),
        heartbeat_ms=heartbeat_ms,
        election_timeout_ms_min=timeout_min_ms,
        election_timeout_ms_max=2 * timeout_min_ms,
        segment_size_bytes_max=rng.choice((2_048, 8_192, 1 << 20)),
        log_size_bytes_max=rng.choice((0, 6_000, 20_000)),
        link_delay_us_min=rng.choice((50, delay_max_us // 2)),
        link_delay_us_max=max(200, delay_max_us),
        held_survive_rate=rng.choice((0.0, 0.5, 1.0)),
        sync_us_min=rng.choice((20, 200, sync_max_us // 2)),
        sync_us_max=max(300, sync_max_us),
        short_write_rate=rng.choice((0.0, 0.0, 0.05)),
        garbage_rate=rng.choice((0.0, 0.0, 0.3)),
        apply_us_max=int(timeout_min_ms * 1000 * applying.choice((0, 0, 0, 0.05, 0.5))),
        clock_rate_spread=rng.choice((0.0, 0.01, 0.05)),
        wall_clock_spread_ms=rng.choice((0, 50, 2_000)),
        wall_clocks_begin_wrong=clocks.random() < 0.2,
        wall_clocks_jump_when_calm=clocks.random() < 0.25,
        timer_lateness_us_max=rng.choice((0, 1_000, 10_000)),
        restart_us_max=int(timeout_min_ms * 1000 * rng.choice((0.1, 1.0, 4.0))),
        fault_duration_us_max=int(timeout_min_ms * 1000 * rng.choice((2.0, 5.0, 8.0))),
        quiet_ms=ends.choice(_QUIET_MS),
        producer_count=rng.choice((1, 2)),
        consumer_count=rng.choice((1, 1, 2)),
        send_interval_ms=send_interval_ms,
        transaction_interval_ms=send_interval_ms * rng.choice((2, 4)),
        body_size_max=rng.choice((20, 200, 1_500)),
        batch_rate=rng.choice((0.0, 0.1)),
        delay_rate=rng.choice((0.0, 0.15)),
        retry_rate=rng.choice((0.5, 1.0)),
        timer_rate=later.choice((0.0, 0.15, 0.3)),
        recall_rate=later.choice((0.2, 0.5)),
        pop_consumer_count=later.choice((0, 1, 2)),
        pop_invisible_ms_max=later.choice((500, 2_000, 5_000)),
        deleter_count=later.choice((0, 0, 1)),
        resetter_count=latest.choice((0, 0, 1)),
        stray_rate=random.Random(f"strays/{seed}/{node_count}").choice((0.0, 1.0)),
        forwarded_rate=latest.choice((0.0, 0.5, 1.0)),
        admin_count=latest.choice((0, 0, 1)),
        shaper_count=shapes.choice((0, 0, 1)),
        orderly_consumer_count=latest.choice((0, 0, 2, 3)),
        lock_owner_fails_when_calm=ends.random() < 0.3,
        order_popper_count=latest.choice((0, 0, 2)),
        opening_failure_rate=later.choice((0.1, 0.1, 0.5)),
        transaction_timeout_ms=rng.choice((300, 1_000, 3_000)),
        transaction_check_interval_ms=rng.choice((300, 1_000, 2_000)),
        transaction_check_max=rng.choice((2, 5, 15)),
        dedupe_window_ms=rng.choice((8_000, 600_000)),
        dedupe_keys_max=rng.choice((40, 500_000)),
        dedupe_evicted_keys_max=rng.choice((40, 1_000_000)),
    )


def group_schedule(options: GroupOptions) -> Schedule:
    """Draw the faults of a seed; rates are per 10 election timeouts."""
    rng = random.Random(f"group schedule/{options.seed}/{options.node_count}")
    return draw_schedule("group", options, rng)


def _with_jumps(rates: dict[str, float], rng: random.Random) -> dict[str, float]:
    """Add jumps of wall clocks, which are common and cost nothing."""
    if rates and rng.random() < 0.3:
        rates.setdefault("wall_clock_jump", rng.choice((0.5, 1.0, 2.0)))
    return rates


def _with_later(rates: dict[str, float], seed: int, node_count: int) -> dict[str, float]:
    rng = random.Random(f"later faults/{seed}/{node_count}")
    for name in _LATER_FAULTS if rates else ():
        weight, rate_max = GROUP_FAULTS[name]
        if rng.random() < weight:
            rates[name] = rate_max * (0.2 + 0.8 * rng.random())
    return rates


def _draw_faults(rng: random.Random) -> dict[str, float]:
    if rng.random() < 0.05:
        return {}  # a calm seed: nothing may go wrong without a reason either
    intensity = rng.choice((0.5, 1.0, 2.0))
    rates: dict[str, float] = {}
    for name, (weight, rate_max) in GROUP_FAULTS.items():
        if name in _LATER_FAULTS:
            continue
        if rng.random() < weight * 0.9:
            rates[name] = rate_max * intensity * (0.2 + 0.8 * rng.random())
    total = sum(rates.values()) or 1.0
    total_max = rng.choice((2.0, 4.0, 8.0))
    return {name: rate * min(1.0, total_max / total) for name, rate in rates.items()}
