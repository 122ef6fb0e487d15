"""Everything that a seed decides before it starts: the swarm.

Place in the data path: `cluster` draws one `SimOptions` per seed and gives its parts to the
network, the disks, the nemesis and the workload. A replay prints every field.

Each seed enables a random subset of the faults, each at a random rate, and draws the sizes and
times as well: a seed with three faults at high rates finds what an average of all never would.

Source: Groce et al., "Swarm testing" (ISSTA '12); the VOPR of TigerBeetle prints its options too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from chaos.sim.seed.schedule import Schedule, draw_schedule
from chaos.sim.seed.seed_options import SeedOptions
from raft.config import RaftConfig
from raft.messages import NodeId

__all__ = [
    "CALMABLE",
    "FAULTS",
    "SimOptions",
    "core_schedule",
    "draw_options",
]

# Weight with which each fault is drawn into a seed, and its highest rate per 10 election timeouts.
FAULTS: dict[str, tuple[float, float]] = {
    "crash_process": (0.45, 1.5),
    "crash_power": (0.6, 2.0),
    "crash_leader": (0.5, 2.0),
    "crash_all": (0.3, 0.6),
    "crash_at_step": (0.6, 3.0),
    "crash_at_disk_operation": (0.5, 3.0),
    "pause": (0.4, 1.5),
    "pause_leader": (0.5, 2.0),
    "isolate": (0.35, 1.2),
    "isolate_leader": (0.7, 2.5),
    "depose_and_return": (0.7, 2.5),
    "halves": (0.35, 1.0),
    "one_way": (0.45, 1.5),
    "one_way_leader": (0.5, 2.0),
    "bridge": (0.25, 0.8),
    "reset_link": (0.5, 4.0),
    "reset_node": (0.4, 2.0),
    "slow_link": (0.35, 1.5),
    "slow_disk": (0.35, 1.0),
    "disk_error": (0.3, 0.6),
    "transfer": (0.4, 3.0),
    "false_alarm": (0.3, 3.0),
    "add_member": (0.4, 1.0),
    "remove_member": (0.35, 0.8),
    "replace_wiped": (0.35, 0.5),
    "crash_in_cut": (0.45, 1.5),
    "fill_disk": (0.35, 1.0),
    "slow_apply": (0.35, 1.0),
    "stop_cleanly": (0.4, 1.5),
    "crash_in_adoption": (0.0, 0.0),  # these see _with_later
    "crash_in_drop": (0.0, 0.0),
    "rot_slots": (0.0, 0.0),
}

# Many kinds share few slots: a bug that takes several faults of one kind in a row is only found
# where a seed has no other kind.
_FEW_KINDS_RATE = 1 / 3
_FEW_KINDS_MAX = 3
_LATER = {"crash_in_adoption": "adoptions", "crash_in_drop": "drops", "rot_slots": "slots"}
_LATER_RATE = 0.25

# Permanent faults, as far as drawn, which can be switched off while a seed is shrunk.
CALMABLE = (
    "message_drop_rate",
    "stale_rate",
    "duplicate_rate",
    "held_survive_rate",
    "short_write_rate",
    "garbage_rate",
    "clock_rate_spread",
    "timer_lateness_us_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions(SeedOptions):
    """The options of one seed. Times of Raft are milliseconds, others microseconds."""

    spare_count: int
    """Machines that may join the group."""
    learner_count: int
    """How many of them are learners in the initial configuration, where it is written."""
    first_is_written: bool
    """Whether the first leader writes the initial configuration to the log."""

    commit_notice_delay_ms: int
    append_size_bytes_max: int
    inflight_count_max: int
    log_cache_size_bytes_max: int

    message_drop_rate: float
    """A full send queue drops a message without breaking the connection."""
    stale_rate: float
    """Of what was in flight on a lost connection: the share that is delivered later anyway."""
    duplicate_rate: float
    """Of messages sent: the share that is delivered once more, up to seconds later."""

    preallocation_size_bytes: int

    propose_interval_us: int
    propose_burst_max: int
    proposals_open_max: int
    """A leader with as many uncommitted entries is offered no more."""
    clients_stick_us: int
    """Longest search of clients for a new leader; 0: they try every leader at once."""
    snapshot_every: int
    """Entries applied between two snapshots; 0: none are taken, and the log is kept whole."""
    install_chunk_size_bytes: int
    payload_size_max: int
    read_interval_us: int
    catch_up_size_bytes_max: int
    """Bytes in flight to a follower that lacks committed entries."""
    checkpoint_us: int
    room_size_bytes: int
    """Kept free behind every entry; 0: room is not checked, and a full disk stops the node."""
    has_preferred_leader: bool
    """Whether the first node has priority as leader."""

    def raft_config(self, node: NodeId, voters: tuple[NodeId, ...]) -> RaftConfig:
        return RaftConfig(
            node_id=node,
            voters=voters,
            heartbeat_ms=self.heartbeat_ms,
            election_timeout_ms_min=self.election_timeout_ms_min,
            election_timeout_ms_max=self.election_timeout_ms_max,
            campaign_delay_ms_min=1,
            campaign_delay_ms_max=max(2, self.election_timeout_ms_min // 4),
            commit_notice_delay_ms=self.commit_notice_delay_ms,
            append_size_bytes_max=self.append_size_bytes_max,
            inflight_count_max=self.inflight_count_max,
            log_cache_size_bytes_max=self.log_cache_size_bytes_max,
            catch_up_size_bytes_max=self.catch_up_size_bytes_max,
            preferred_leader=voters[0] if self.has_preferred_leader else None,
            preferred_after_ms=2 * self.election_timeout_ms_max,
        )


def draw_options(seed: int, node_count: int) -> SimOptions:
    """Draw the options; the same seed and number of nodes give the same options."""
    rng = random.Random(f"options/{seed}/{node_count}")
    # Around the product's default of 75 ms.
    heartbeat_ms = rng.choice((20, 40, 75, 75, 150))
    timeout_min_ms = heartbeat_ms * rng.choice((3, 4, 4, 6))
    # Delays near the election timeout make leaders come and go; most seeds have a quick network.
    delay_max_us = int(timeout_min_ms * 1000 * rng.choice((0.01, 0.02, 0.05, 0.2, 0.5)))
    sync_max_us = int(timeout_min_ms * 1000 * rng.choice((0.005, 0.02, 0.1, 0.4)))
    segment_size = rng.choice((256, 512, 1024, 4096, 65536))
    append_size = rng.choice((1, 200, 2000, 1 << 20, 1 << 20))
    # One entry per message: a long backlog would cost more steps than it shows.
    proposals_open_max = rng.choice((4, 30, 100) if append_size > 200 else (4, 12, 30))
    return SimOptions(
        seed=seed,
        node_count=node_count,
        spare_count=(spare_count := rng.choice((0, 1, 2)) if node_count > 1 else 0),
        first_is_written=(first_is_written := rng.random() < 0.7),
        fault_time_us=int(timeout_min_ms * 1000 * rng.uniform(12, 40)),
        fault_rates=_with_later(_draw_faults(rng, node_count), seed, node_count),
        heartbeat_ms=heartbeat_ms,
        election_timeout_ms_min=timeout_min_ms,
        election_timeout_ms_max=int(timeout_min_ms * rng.choice((1.3, 2.0, 2.0))),
        commit_notice_delay_ms=rng.choice((0, 2, 5)),
        append_size_bytes_max=append_size,
        inflight_count_max=rng.choice((1, 4, 128, 128)),
        log_cache_size_bytes_max=rng.choice((1, 500, 1 << 20)),
        link_delay_us_min=rng.choice((0, 50, delay_max_us // 2)),
        link_delay_us_max=max(100, delay_max_us),
        message_drop_rate=rng.choice((0.0, 0.0, 0.002, 0.02)),
        stale_rate=rng.choice((0.0, 0.2, 0.7)),
        duplicate_rate=rng.choice((0.0, 0.02, 0.2, 0.4)),
        held_survive_rate=rng.choice((0.0, 0.5, 1.0)),
        sync_us_min=rng.choice((20, 200, sync_max_us // 2)),
        sync_us_max=max(300, sync_max_us),
        short_write_rate=rng.choice((0.0, 0.0, 0.05)),
        garbage_rate=rng.choice((0.0, 0.0, 0.3)),
        segment_size_bytes_max=segment_size,
        preallocation_size_bytes=rng.choice((1, 128, 4096)),
        clock_rate_spread=rng.choice((0.0, 0.01, 0.1)),
        timer_lateness_us_max=rng.choice((0, 1000, 10_000)),
        restart_us_max=int(timeout_min_ms * 1000 * rng.choice((0.1, 1.0, 4.0))),
        fault_duration_us_max=int(timeout_min_ms * 1000 * rng.choice((2.0, 5.0, 8.0))),
        propose_interval_us=int(timeout_min_ms * 1000 * rng.choice((0.08, 0.2, 0.5))),
        propose_burst_max=rng.choice((1, 2, 8)),
        proposals_open_max=proposals_open_max,
        clients_stick_us=int(timeout_min_ms * 1000 * rng.choice((0, 0.5, 2))),
        snapshot_every=rng.choice((0, 8, 30)),
        install_chunk_size_bytes=rng.choice((64, 300, 4096)),
        payload_size_max=rng.choice((16, 60, 400)),
        read_interval_us=int(timeout_min_ms * 1000 * rng.choice((0.15, 0.5, 1.5))),
        # No smaller: a node that lacks hundreds of entries would need more round trips than the
        # liveness phase has time for.
        catch_up_size_bytes_max=rng.choice((1_500, 8_000, 1 << 19)),
        opening_failure_rate=rng.choice((0.1, 0.1, 0.3, 0.6)),
        learner_count=rng.randint(0, spare_count) if first_is_written else 0,
        checkpoint_us=int(timeout_min_ms * 1000 * rng.choice((0.2, 1.0, 5.0))),
        room_size_bytes=rng.choice((0, 150, 150, 1_500)),
        has_preferred_leader=rng.random() < 0.25,
    )


def core_schedule(options: SimOptions) -> Schedule:
    """Draw the faults of a seed; rates are per 10 election timeouts."""
    rng = random.Random(f"schedule/{options.seed}/{options.node_count}")
    return draw_schedule("core", options, rng)


def _with_later(rates: dict[str, float], seed: int, node_count: int) -> dict[str, float]:
    """Add the rates of later faults, from generators of their own.

    What was added later leaves most older seeds what they were.
    """
    if not rates or node_count == 1:
        return rates
    later = {}
    for name, key in _LATER.items():
        rng = random.Random(f"{key}/{seed}/{node_count}")
        if rng.random() < _LATER_RATE:
            later[name] = rng.choice((2.0, 4.0))
    return rates | later


def _kinds(node_count: int) -> list[str]:
    kinds = [name for name, (weight, _) in FAULTS.items() if weight]
    if node_count > 1:
        return kinds
    # A sole node has no network to break.
    local = ("crash", "pause", "slow_disk", "slow_apply", "disk_error", "fill_disk", "stop")
    return [name for name in kinds if name.startswith(local)]


def _draw_faults(rng: random.Random, node_count: int) -> dict[str, float]:
    if rng.random() < 0.03:
        return {}  # a calm seed: nothing may go wrong without a reason either
    kinds = _kinds(node_count)
    if rng.random() < _FEW_KINDS_RATE:
        few = rng.sample(kinds, rng.randint(1, _FEW_KINDS_MAX))
        total = rng.choice((4.0, 8.0, 16.0))
        shares = [0.2 + rng.random() for _ in few]
        return {name: total * share / sum(shares) for name, share in zip(few, shares, strict=True)}
    intensity = rng.choice((0.5, 1.0, 2.0))
    rates: dict[str, float] = {}
    for name in kinds:
        weight, rate_max = FAULTS[name]
        if rng.random() < weight * 0.6:
            rates[name] = rate_max * intensity * (0.2 + 0.8 * rng.random())
    total = sum(rates.values()) or 1.0
    # Some seeds leave time between the faults, some hardly any for anything to be committed.
    total_max = rng.choice((4.0, 8.0, 16.0))
    return {name: rate * min(1.0, total_max / total) for name, rate in rates.items()}
