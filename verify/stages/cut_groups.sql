-- Broker groups whose logs retention has cut. Where run.json has no queue, as of a topic that was
-- deleted and not made again, nothing tells from which offset on their absence would count.
select broker_group from first_index where first_index > 1
