-- D1: delivered before it was due
-- promise: G5
-- needs: ops
-- wants: raft, log
-- applies: select (select coalesce(bool_or(has_delays), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'delay') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'delay' and type <> 'fail'
-- nothing: no delayed message was sent
-- holds: No delayed message was delivered before its time.
-- rule: A delayed message whose record on a user topic was appended, or which was read, more than
--   early_ms before the least due of its attempts that did not fail, by more than the clocks may
--   differ.
-- source: RocketMQ ScheduleMessageService, TimerMessageStore; issue 1934
select
  d.value, d.due, d.t_shown, d.due - d.t_shown as early_ns, d.sent_op, d.shown_by
from delays d cross join run_settings s
where not d.is_untold
  and d.t_shown + s.early_ns + coalesce(s.clock_error_ns, cast(0 as bigint)) < d.due
