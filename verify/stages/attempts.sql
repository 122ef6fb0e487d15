-- Messages that sends and halves tried to have stored.
select * from messages where f in ('send', 'half')
