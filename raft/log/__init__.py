"""The log on disk: segments, their table and index, recovery, damage, and durability.

The room owns the bytes of the log, of term and vote, and the knowledge of what in them is damaged.
`segment_log` appends, reads, truncates and syncs, over `segment_files`, `segment_table` and
`segment_index`; `log_recovery`, `segment_scan` and `segment_rebuild` open it after a crash;
`verified_reads` and `readable_log` hand out only what was checked, so that the core never sees a
damaged entry; `scrub` looks for damage in closed segments and `log_repair` puts good entries in its
place; `page_cache` lets the kernel forget what stands well before the end, and `kernel_aio` lets
it fsync beside the event loop. `durable_mark`,
`log_base`, `slot_file` and `durable_record` are the small files beside the log. `hard_state` is
here since no entry may be durable before its term.

It never decides what is committed and never hands out bytes that were not checked; a start never
cuts off what was durable. It knows nothing of elections.

May import: `raft`.
"""
