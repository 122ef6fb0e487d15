"""Consumers: push, pull, POP and lite pull, and the queues and locks of group members.

`push_consumer`, `lite_pull_consumer`, `pull_consumer` and `pop_consumer` are the four kinds.
`rebalance` shares a topic's queues, `queue_consumer` consumes one of them with its `process_queue`,
`queue_locks` knows which queues an orderly consumer may consume: for 30 s from its request.
`send_back` returns a message that could not be handled; `local_offsets` stores broadcast offsets;
`consumer_admin` answers administrators.

An orderly consumer never consumes by an answer that comes when its lease is over.

May import: `client`, `client.connection`, `client.produce`, `client.trace`, `remoting`.
"""
