-- One row per value that was attempted: how often, when first (`t_sent`; `t_open`: of the attempts
-- that did not end fail), and with which keys. `must`: it must have committed. `digest`: the least of
-- its attempts' digests, null where one of them tells none.
-- parts: value
select
  a.value,
  count(a.type) as attempts,
  count_if(a.type <> 'fail') as open_attempts,
  count_if(a.type is not null and a.uniq_key is null) as attempts_without_key,
  min(a.op) as sent_op,
  min(a.t_invoke) as t_sent,
  min(case when a.type <> 'fail' then a.t_invoke end) as t_open,
  case when count(a.digest) = count(*) then min(a.digest) end as digest,
  bool_or(c.op is not null and a.f = 'send') as must,
  min(a.uniq_key) as least_key,
  max(a.uniq_key) as greatest_key
from attempts a left join must_have_committed c on a.op = c.op
group by a.value
