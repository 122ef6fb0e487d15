"""Process of a broker: server, request table, registration, housekeeping.

`server` is the process: sockets, timers, signals. `request_table` has a row for every request that
is served, `processors` puts the handlers together that the rows name, `not_served` says of every
other code whose it is or why nobody's (decision 12). `replication` chooses the engine,
`registration` registers with the name servers. `rounds` runs on one timer of the loop, every 25 ms,
what has to be polled: held pulls, delays, timers, holdings, index, disk, accounts. `housekeeping`
polls the disk, drops old messages, and transfers leadership away from a full disk.

The server and the table decide nothing and decode no fields; rounds run on no thread and catch
nothing that an act raises; housekeeping never touches the log's files itself.

May import: `broker.access`, `broker.admin`, `broker.config`, `broker.delay`, `broker.entry`,
  `broker.failpoints`, `broker.groups`, `broker.ha`, `broker.index`, `broker.leader`, `broker.pop`,
  `broker.pull`, `broker.queues`, `broker.request`, `broker.send`, `broker.state`,
  `broker.transaction`, `raft`, `remoting`.
"""
