"""Which tests are the unit lane (`make unit`): all but those that this module names.

A test of the unit lane opens no socket, starts no process and waits for no clock, and all of them
together take less than a minute. One that connects, listens or starts a process fails (`guarded`);
what takes long is named here by whoever measures. A new module is in the lane until it is named.
Tests that are marked `spark` or `cluster` are not in it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["OTHERS", "guarded", "is_unit"]

ROOT: Final = Path(__file__).resolve().parent

OTHERS: Final = frozenset(
    {
        # Sockets, processes, Java.
        "broker/failpoints/test_not_loaded",
        "broker/filter/test_long_values",
        "broker/test_forwarding",
        "broker/test_leading_begins",
        "broker/test_security",
        "broker/test_security_of_contents",
        "broker/test_unforeseen_requests",
        "chaos/campaign/test_commands",
        "chaos/campaign/test_fork_server",
        "chaos/campaign/test_simulated_campaign",
        "chaos/nemesis/test_older_release",
        "chaos/test_cluster",
        "chaos/test_experiment",
        "chaos/test_external",
        "chaos/test_failpoints",
        "chaos/test_links",
        "chaos/test_live_tables",
        "chaos/test_members",
        "chaos/test_parent_death",
        "chaos/test_planted_bug",
        "chaos/test_processes",
        "chaos/test_scenario",
        "chaos/test_application_drills",
        "chaos/test_illegal_requests",
        "chaos/test_passed_and_reset",
        "chaos/test_slips",
        "chaos/test_hung_clients",
        "chaos/test_planted_in_parts",
        "chaos/test_simulated_world",
        "chaos/test_talks",
        "chaos/test_workload_parts",
        "chaos/toxiproxy/test_api",
        "chaos/toxiproxy/test_client",
        "chaos/toxiproxy/test_events",
        "chaos/toxiproxy/test_frames_live",
        "chaos/toxiproxy/test_half_open",
        "chaos/toxiproxy/test_traffic",
        "client/test_admin",
        "client/test_alone",
        "client/test_batches",
        "client/test_client_docs",
        "client/test_consumer_admin",
        "client/test_instance",
        "client/test_lite_pull_consumer",
        "broker/ha/test_frame_writer",
        "broker/ha/test_replication",
        "broker/ha/test_trace",
        "client/test_lost_locks",
        "client/test_pop_consumer",
        "client/test_producer",
        "client/test_pull_consumer",
        "client/test_push_consumer",
        "client/test_push_modes",
        "client/test_push_positions",
        "client/test_quick_try",
        "client/test_request_reply",
        "client/test_security_and_names",
        "client/test_sync",
        "client/test_tls",
        "client/test_trace",
        "client/test_transaction_producer",
        "client/test_tx_commands",
        "client/test_unreadable_bodies",
        "client/test_with_ledgermq",
        "fuzz",
        "integration",
        "interop",
        "mutants",
        "namesrv/test_administration",
        "namesrv/test_held_lookups",
        "namesrv/test_server",
        "raft/test_full_disk",
        "raft/test_link_volume",
        "raft/test_node",
        "raft/test_node_crashes",
        "raft/test_node_disk",
        "raft/test_node_formation",
        "raft/test_node_members",
        "raft/test_node_repair",
        "raft/test_node_snapshots",
        "raft/test_node_stalls",
        "raft/test_pysyncobj_log",
        "raft/test_replay",
        "raft/test_transport",
        "remoting/test_acl_signature",
        "remoting/test_cancelled_dial",
        "remoting/test_connection",
        "remoting/test_tls",
        "remoting/test_volume",
        "sim/test_campaign",
        "test_nightly",
        "test_process_sweeper",
        "verify/test_early_session",
        "verify/test_hadoop_files",
        "verify/test_hadoop_input",
        "verify/test_java",
        "verify/test_machine",
        "verify/test_spark_cluster",
        "verify/test_spark_failures",
        "verify/test_spark_home",
        # What takes long, or the clock's time.
        "broker/ha/test_crash_points",
        "broker/test_small_requests",
        "chaos/campaign/test_shrink",
        "chaos/nemesis/test_runner",
        "raft/test_core_network",
        "raft/test_crash_points",
        "raft/test_group_commit_model",
        "raft/test_identity",
        "raft/test_log_repairer",
        "raft/test_stalls",
        "sim/test_derived",
        "sim/test_every_damage",
        "sim/test_findings",
        "sim/test_garbling",
        "sim/test_masters",
        "sim/test_record",
        "sim/test_replicas",
        "sim/test_schedule",
        "sim/test_schedules",
        "sim/test_true_time",
        "test_docs",
        "verify/report/test_build",
        "verify/test_common_tables",
        "verify/test_consumer_edges",
        "verify/test_delay_edges",
        "verify/test_engines",
        "verify/test_export",
        "verify/test_known_bug_rules",
        "verify/test_management_edges",
        "verify/test_orphan_halves",
        "verify/test_outside",
        "verify/test_promises",
        "verify/test_rule_edges",
        "verify/test_rule_files",
        "verify/test_scale",
        "verify/test_second_engine",
        "verify/test_stores",
        "verify/test_unknown",
        "verify/test_vocabulary",
        # Of modules that are in it otherwise: half a second of processor time and more.
        "broker/filter/test_sql::test_expressions_say_what_the_dumb_evaluator_says",
        "broker/pop/test_pop_model::test_nothing_is_lost_and_nothing_given_twice_while_it_is_held",
        "broker/test_any_request::test_no_request_raises",
        "broker/test_dedupe::test_no_key_is_called_new_again_whoever_is_ahead",
        "broker/test_dedupe_answers::test_what_is_stored_is_never_surely_not_stored",
        "broker/test_deleted_topic_model::test_the_next_topic_has_nothing_of_the_one_before",
        "broker/test_greedy_clients::test_a_closed_connection_costs_what_it_brought",
        "broker/test_group_clock::test_no_minority_of_clocks_moves_group_time",
        "broker/test_group_clock::test_over_slow_links_no_stamp_is_ahead",
        "broker/test_only_committed::test_nothing_but_a_committed_entry_is_success",
        "broker/test_reset_model::test_a_reset_sends_back_once",
        "broker/test_state_image::test_a_capture_at_the_bounds_shares_what_is_closed",
        "broker/test_state_image::test_a_restored_state_goes_on_as_the_original",
        "broker/test_store_walk::test_queues_show_what_the_log_has_whatever_happens",
        "broker/test_waiting_model::test_what_is_due_is_delivered_once_whatever_became_of_earlier_tries",
        "chaos/toxiproxy/test_stages::test_slicer_works_with_whatever_it_is_given",
        "client/test_pure_parts::TestOrderedProcessQueue",
        "client/test_pure_parts::TestProcessQueue",
        "namesrv/test_route_model::TestRouteTable",
        "raft/test_checkpoint::test_every_changed_byte_and_every_cut_is_found",
        "raft/test_damaged_terms::test_votes_depend_on_the_logs_end_alone",
        "raft/test_log_damage::test_one_corruption_is_found_and_mended",
        "raft/test_log_damage::test_several_corruptions_are_found_and_mended",
        "raft/test_segment_log::TestLogMachine",
        "remoting/test_frame::test_any_cut_of_the_stream_gives_the_same_commands",
        "remoting/test_frame::test_damaged_frames_raise_frame_error_only",
        "remoting/test_message::test_damage_gives_a_record_error_or_another_record",
        "remoting/test_proxy_preamble::test_a_preamble_is_read_and_nothing_behind_it",
        "sim/test_virtual_loop::test_a_timer_is_never_early",
        "verify/test_extent::test_it_tells_what_a_run_did_and_what_it_does_not_show",
    }
)
"""Folders, modules and tests, below tests/."""

_FORBIDDEN: Final = frozenset(
    {"socket.connect", "socket.bind", "subprocess.Popen", "os.fork", "os.posix_spawn"}
)


class _Guard:
    """One audit hook, which can't be removed, and the list that it fills while there is one."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        self.others: frozenset[int] = frozenset()
        self.is_hooked = False

    def audit(self, event: str, _: tuple[Any, ...]) -> None:
        if self.seen is None or event not in _FORBIDDEN:
            return
        if threading.get_ident() not in self.others:
            self.seen.append(event)


_guard: Final = _Guard()


def is_unit(path: Path, test: str = "") -> bool:
    """Whether this test of a module, or any of a module or folder, may be in the unit lane."""
    parts = path.resolve().relative_to(ROOT).with_suffix("").parts
    names = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return OTHERS.isdisjoint(names | {f"{'/'.join(parts)}::{test}"})


@contextmanager
def guarded() -> Iterator[list[str]]:
    """What was done within that no unit test does, by the names of Python's audit events.

    Threads that were there before do as they like: those of a Spark session that an earlier test
    of the process opened connect whenever Python collects garbage.
    """
    if not _guard.is_hooked:
        sys.addaudithook(_guard.audit)
        _guard.is_hooked = True
    seen: list[str] = []
    before = _guard.seen, _guard.others
    idents = {thread.ident for thread in threading.enumerate() if thread.ident is not None}
    _guard.others = frozenset(idents - {threading.get_ident()})
    _guard.seen = seen
    try:
        yield seen
    finally:
        _guard.seen, _guard.others = before
