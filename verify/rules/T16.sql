-- T16: half stored twice
-- promise: G4
-- needs: ops
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select bool_or(has_dedupe) from run_settings)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half' and type = 'ok'
-- nothing: no half was acknowledged
-- holds: However often a half was sent, it is one.
-- rule: Two acknowledged sends of one transaction's half that were told different places in the half
--   topic, though the brokers know a message by its key when it is sent again (dedupe).
-- source: promise of this project's broker: a send that is repeated names the first place
select
  tx, broker_group, min(offset) as half_offset, max(offset) as other_offset, min(op) as op,
  max(op) as other_op, count(*) as acknowledged
from ops
where f = 'half' and type = 'ok' and tx is not null and offset is not null
group by tx, broker_group
having min(offset) <> max(offset)
