"""Requests of administrators: topics, progress, members, statistics, maintenance, files.

`admin` makes, changes and deletes topics; `offset_reset` moves groups; `consume_stats`, `stats`,
`runtime_info`, `ha_status` and `client_listing` report how things stand; `raft_members` changes the
members of the group; `consumer_relay` hands a request on to a connected consumer; `settings` shows
and changes this process's settings; `maintenance` and `disk_use` are about files and the disk;
`release` says which code runs.

Handlers here propose changes as all others do; none changes replicated state itself.

May import: `broker.config`, `broker.entry`, `broker.queues`, `broker.request`, `broker.state`,
  `broker.transaction`, `raft`, `remoting`.
"""
