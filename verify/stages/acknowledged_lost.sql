-- How many values that were acknowledged, as sends or by the commit of their transaction, stand in no
-- committed log, of broker groups whose logs begin with their first entry.
select count(*) as messages
from values_acked a
left anti join values_logged l on a.value = l.value
left anti join first_index f
  on a.place.broker_group = f.broker_group and f.first_index > 1
