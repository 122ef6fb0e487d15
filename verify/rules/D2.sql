-- D2: recalled and delivered
-- promise: G7
-- needs: ops
-- wants: log
-- applies: select (select coalesce(bool_or(has_delays), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'recall') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'recall' and type = 'ok'
-- nothing: no recall was answered with success
-- holds: Nothing that was recalled was delivered.
-- rule: A delayed message with an ok recall, which was read, or stands on a user topic in a committed
--   log. Where recall_ms is above 0, a recall that was answered less than that before the message
--   was due proves nothing.
-- source: RocketMQ RecallMessageProcessor
select
  d.value, d.recalled_op, d.t_recalled, d.due, d.t_shown, d.read_op, d.first_index, d.shown_by
from delays d
left anti join tried_twice t on d.value = t.value
cross join run_settings s
where d.recalls_ok > 0 and d.was_shown
  and (s.recall_ns = 0 or d.due - d.t_recalled >= s.recall_ns)
