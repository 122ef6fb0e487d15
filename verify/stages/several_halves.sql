-- Transactions of which more than one half may stand: a check that does not tell its half may be
-- of any of them.
select tx from ops where f = 'half' and type <> 'fail' and tx is not null group by tx having count(*) > 1
