-- Values that may rightly stand at several places: without dedupe, those with two or more attempts
-- that did not end fail.
select v.value
from values_told v cross join run_settings s
where not s.has_dedupe and v.open_attempts > 1
