-- M12: answer is not what a model expects
-- promise: none
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'expect'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'expect' and type = 'ok'
-- nothing: no answer was held against a model
-- holds: The answers that were held against a model of the client or the broker were those expected.
-- rule: An expectation (`key`: what was asked; `ref`: what a model expects that shares no code with
--   the system) with another answer (`status`). One without a ref is not judged: whoever recorded it
--   could not know.
-- source: own rule
select
  key as question, client_group, client, op, ref as expected, status as answered, broker_group,
  topic, queue, node, t_invoke
from ops
where f = 'expect' and type = 'ok' and ref is not null and not (ref <=> status)
