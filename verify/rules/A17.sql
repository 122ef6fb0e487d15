-- A17: replica left behind
-- promise: none
-- needs: none
-- applies: select has_left_behind from run_settings
-- examined: select count(*) from run_voters
-- nothing: the run names no replica
-- rule: Once every fault is healed and nothing is sent any more, each replica has to apply what its
--   leader has committed, within the time that the scenario gives. Who had not stands in run.json.
-- source: the run format, left_behind
select broker_group, node from run_left_behind
