-- What rules about POP share: by how much clocks may differ, when the load's faults were over, and
-- a time that never comes.
select
  coalesce(clock_error_ns, cast(0 as bigint)) as error_ns,
  coalesce(heal_from, cast(0 as bigint)) as heal_from,
  cast(9223372036854775807 as bigint) as never
from run_settings
