-- D5: delivered far too late
-- promise: G8
-- needs: ops, raft, log
-- wants: faults
-- applies: select (select coalesce(bool_or(has_delays and late_ns is not null), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'delay') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'delay' and type = 'ok'
-- nothing: no delayed message was acknowledged
-- holds: Delayed messages were delivered about when they were due.
-- rule: A delayed message whose first record on a user topic was appended more than late_ms after the
--   latest time at which it fell due, though no fault window lies between its due and late_ms
--   behind it. One whose append no trace tells is not judged.
-- source: own rule
select
  d.value, d.due_latest, d.t_shown, d.t_shown - d.due_latest as late_by_ns, d.acked_op, d.shown_by
from delays d
cross join run_settings s
join calm_stretches c on c.t_from < d.due and c.t_to > d.due_latest + s.late_ns
-- Where its append is told nowhere a read may show it long after it came.
where not d.is_untold and d.acked_op is not null and d.t_logged is not null
  and d.t_shown > d.due_latest + s.late_ns
