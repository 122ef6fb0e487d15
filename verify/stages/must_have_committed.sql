-- Sends that were ok, or of unknown outcome with a value of a single attempt that was read ok.
with single as (
  select value, min(op) as op from attempts where type <> 'fail' group by value having count(*) = 1
),
proved as (
  select s.op from single s left semi join (select value from reads where type = 'ok') r on s.value = r.value
)
select op from proved
union
select op from ops where f = 'send' and type = 'ok'
