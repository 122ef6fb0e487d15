-- From which index on absence counts, by group: the highest of the first indexes of its replicas.
select broker_group, max(first_index) as first_index from replicas group by broker_group
