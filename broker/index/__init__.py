"""Messages by key: the hash index over the log, its indexer, and the query that reads it.

`indexer` follows the applied log, a few milliseconds at a time, and answers by `caught_up` whether
it has come far enough for a query. `message_index` is a row of `index_file`s, RocketMQ's format;
`message_keys` and `key_hashes` say under which keys a message is found; `query_message` answers.

The room never holds up a request, and holds nothing that the log can't rebuild.

May import: `broker.entry`, `broker.queues`, `broker.request`, `raft`, `remoting`.
"""
