-- A11: unexpected value
-- promise: G7
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver')
-- nothing: no operation read anything
-- holds: Nothing was read that nobody sent.
-- rule: A value, or a pair of value and uniq_key, that nobody sent, in a read or a committed log.
-- source: Jepsen's total-queue, unexpected
select value, read_op, logged_index, sent_keys, seen_keys, read_at, logged_at
from values_told
where (read_op is not null or logged_index is not null)
  and (
    attempts = 0
    or (
      attempts_without_key = 0
      and size(filter(seen_keys, seen -> not array_contains(sent_keys, seen))) > 0
    )
  )
