"""What a campaign has really exercised: a rule that was never put to the test proves nothing.

Place in the data path: the parts of the simulator count here, `campaign` adds the seeds up and
says which counter stayed 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from chaos.sim.group.options import GROUP_FAULTS
from chaos.sim.options import FAULTS

__all__ = ["COUNTERS", "GROUP_COUNTERS", "Coverage"]

COUNTERS: tuple[str, ...] = (
    "steps",
    "virtual_ms",
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
    "crashes",
    "crashes_in_disk_operations",
    "crashes_in_steps",
    "power_failures",
    "restarts",
    "lost_unsynced_bytes",
    "torn_writes",
    "torn_tails_cut",
    "tails_survived_unsynced",
    "disk_errors",
    "pauses",
    "messages_delivered",
    "messages_swallowed_by_cuts",
    "messages_lost_with_connections",
    "messages_dropped",
    "messages_delivered_stale",
    "messages_duplicated",
    "connections_lost",
    "recoveries_of_hints",
)

GROUP_COUNTERS: tuple[str, ...] = (
    "seeds_of_whole_groups",
    "tcp_connections",
    "tcp_deliveries",
    "tcp_held_by_cuts",
    "clean_stops",
    "sends",
    "batches",
    "halves",
    "sends_acknowledged",
    "sends_refused",
    "sends_unknown",
    "decisions_acknowledged",
    "decisions_commit",
    "decisions_rollback",
    "decisions_discard",
    "checks_counted",
    "check_backs",
    "delayed_deliveries",
    "clients_crashed_in_transactions",
    "messages_read",
    "reads_failed",
    "offsets_committed",
    "offsets_fetched",
    "offsets_moved",
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
)
"""Of seeds that run whole groups."""


class Coverage:
    """Counters by name; a name that is not in COUNTERS or a fault's is a KeyError."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys((*COUNTERS, *GROUP_COUNTERS), 0)
        self.counts.update((f"fault:{name}", 0) for name in (*FAULTS, *GROUP_FAULTS))

    def add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] += count

    def zeros(self) -> list[str]:
        return [name for name, count in self.counts.items() if not count]
