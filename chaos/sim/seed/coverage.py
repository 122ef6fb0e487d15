"""Counters of what a campaign has exercised: a rule that was never put to the test proves nothing.

Place in the data path: the parts of the simulator count here, `campaign` adds the seeds up and
prints which counters stayed 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from chaos.sim.seed.core_options import FAULTS
from chaos.sim.seed.group_options import GROUP_FAULTS
from chaos.sim.seed.ha_options import HA_FAULTS

__all__ = ["COMMON_COUNTERS", "CORE_COUNTERS", "GROUP_COUNTERS", "HA_COUNTERS", "Coverage"]

RARE_COUNTERS: tuple[str, ...] = (
    "resets_ended_by_late_pulls",
    "resets_followed_behind",
    "resets_repeated",
    "oneway_commits_lost",
    "stray_disks_started",
    "slaves_with_another_log",
)
"""Counters that may stay 0 in a campaign."""

COMMON_COUNTERS: tuple[str, ...] = (
    "virtual_ms",
    "crashes",
    "crashes_in_disk_operations",
    "crashes_in_steps",
    "power_failures",
    "lost_unsynced_bytes",
    "torn_writes",
    "disk_errors",
    "kernel_syncs",
    "pauses",
    "connections_lost",
)
"""Counters of every seed."""

CORE_COUNTERS: tuple[str, ...] = (
    "steps",
    "elections",
    "campaigns",
    "pre_vote_rejections",
    "vote_rejections",
    "step_downs_by_term",
    "step_downs_by_check_quorum",
    "entries_appended",
    "entries_committed",
    "truncations",
    "truncations_of_durable_entries",
    "log_refusals",
    "proposals",
    "proposals_acknowledged",
    "proposals_truncated",
    "proposals_unknown",
    "proposals_at_stale_leaders",
    "reads_served",
    "reads_refused",
    "syncs",
    "hard_states_saved",
    "restarts",
    "torn_tails_cut",
    "tails_survived_unsynced",
    "messages_delivered",
    "messages_swallowed_by_cuts",
    "messages_lost_with_connections",
    "messages_dropped",
    "messages_delivered_stale",
    "messages_duplicated",
    "messages_of_lost_stores",
    "recoveries_of_hints",
    "snapshots_taken",
    "states_restored",
    "logs_shortened",
    "install_chunks",
    "installs",
    "changes_refused",
    "configurations_in_force",
    "configurations_taken_back",
    "configurations_committed",
    "learners_promoted",
    "learners_left_as_such",
    "learners_removed",
    "crashes_armed_in_openings",
    "errors_armed_in_openings",
    "crashes_in_openings",
    "errors_in_openings",
    "logs_without_room",
    "rooms_found_again",
    "replays",
    "leaderships_of_preferred_nodes",
    "adoptions_broken_off",
    "drops_broken_off",
    "power_lost_soon_after",
    "clean_stops_begun",
    "clean_stops_ended",
    "members_removed",
    "leaders_removed",
    "disks_wiped",
    "wiped_members_replaced",
)
"""Counters of seeds that drive bare cores."""

GROUP_COUNTERS: tuple[str, ...] = (
    "seeds_of_whole_groups",
    "tcp_connections",
    "tcp_deliveries",
    "tcp_held_by_cuts",
    "frames_garbled",
    "garbled_connections_closed",
    "clean_stops",
    "openings_troubled",
    "sends",
    "batches",
    "halves",
    "sends_acknowledged",
    "sends_refused",
    "sends_unknown",
    "sends_deduplicated",
    "leaderships_transferred",
    "files_spoilt",
    "logs_begun_late",
    "derived_files_lost",
    "damages_repaired",
    "decisions_acknowledged",
    "decisions_commit",
    "decisions_rollback",
    "decisions_discard",
    "checks_counted",
    "check_backs",
    "delayed_deliveries",
    "timers_delivered",
    "timers_recalled",
    "recalls_told",
    "recalls_failed",
    "messages_popped",
    "messages_acknowledged",
    "acknowledgements_told",
    "acknowledgements_void",
    "messages_postponed",
    "messages_revived",
    "topics_deleted",
    "deletions_told",
    "waiting_deleted",
    "topics_reshaped",
    "shapes_kept",
    "settings_changed",
    "clients_crashed_in_transactions",
    "clock_jumps_when_calm",
    "messages_read",
    "reads_failed",
    "offsets_committed",
    "offsets_fetched",
    "offsets_moved",
    "offsets_reset",
    "resets_followed",
    "queues_granted",
    "queues_taken_over",
    "queues_claimed_anew",
    "unlocks_said_again",
    "messages_consumed_in_order",
    "messages_popped_in_order",
    "messages_acknowledged_in_order",
    "registry_changes",
    "halves_resumed",
    "oneway_commits_seen",
    "requests_told",
    "requests_refused",
    "max_offsets_read",
    "queues_drained",
    "serve_ms",
    "trace:start",
    "trace:role",
    "trace:vote",
    "trace:append",
    "trace:truncate",
    "trace:fsync",
    "trace:commit",
    "trace:apply",
    "trace:read",
    "trace:config",
    "trace:install",
    "trace:state",
)
"""Counters of seeds that run whole groups."""

HA_COUNTERS: tuple[str, ...] = (
    "seeds_of_masters",
    "states_diverged",
    "entries_of_masters",
    "entries_lost_by_masters",
    "entries_dropped_by_slaves",
    "messages_lost_after_an_answer",
    "slaves_cut",
    "slaves_cut_by_one",
    "slaves_cut_by_more",
    "slaves_cut_ahead",
    "logs_damaged",
    "damaged_logs_refused",
    "power_failures_behind_failed_syncs",
    "ends_asked",
    "ends_told",
    "ends_told_by_slaves",
    "slaves_cut_at_the_last",
    "slaves_cut_inside",
    "slaves_cut_at_a_same_entry",
    "slaves_cut_at_a_longer_entry",
    "slaves_cut_at_a_shorter_entry",
    "slaves_cut_behind_the_master",
    "commands_beside",
    "messages_beside",
    "logs_shortened",
    "slaves_wiped",
    "masters_wiped",
    "slaves_starved",
    "masters_changed",
    "entries_lost_by_changes",
    "slaves_given_a_copy",
    "slaves_with_another_log",
    "logs_begun_late",
    "openings_troubled",
    "clean_stops",
    "derived_files_lost",
    "sends",
    "sends_again",
    "sends_unknown",
    "told_SEND_OK",
    "told_FLUSH_DISK_TIMEOUT",
    "told_FLUSH_SLAVE_TIMEOUT",
    "told_SLAVE_NOT_AVAILABLE",
    "messages_read",
    "reads_failed",
    "offsets_moved",
    "serve_ms",
)
"""Counters of seeds that run a master and its slaves."""

_OF_KIND = {"core": (*CORE_COUNTERS,), "group": (*GROUP_COUNTERS,), "ha": (*HA_COUNTERS,)}
_FAULTS_OF_KIND = {"core": FAULTS, "group": GROUP_FAULTS, "ha": HA_FAULTS}


class Coverage:
    """Counters by name; a name that is neither a counter nor a fault raises KeyError."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        counters = (COMMON_COUNTERS, CORE_COUNTERS, GROUP_COUNTERS, HA_COUNTERS, RARE_COUNTERS)
        names = [name for of_kind in counters for name in of_kind]
        self.counts: dict[str, int] = dict.fromkeys(names, 0)
        self.counts.update((f"fault:{name}", 0) for name in (*FAULTS, *GROUP_FAULTS, *HA_FAULTS))

    def add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] += count

    @staticmethod
    def zeros(counts: Mapping[str, int], kinds: Collection[str]) -> list[str]:
        """Return the counters that seeds of these kinds should have moved, and did not."""
        names = dict.fromkeys(COMMON_COUNTERS)
        for kind in kinds:
            names.update(dict.fromkeys(_OF_KIND[kind]))
            names.update((f"fault:{name}", None) for name in _FAULTS_OF_KIND[kind])
        return [name for name in names if not counts[name]]
