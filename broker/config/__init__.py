"""Configuration of a broker: the file read at its start, settings changed later, retention.

`config` reads and checks the configuration file, `settings` shows and changes one process's
settings under RocketMQ's names, `retention` computes from which position on the log is retained,
`host_names` the address that records name this broker by.

Settings are this replica's own: they survive a restart, not a failover. The room never touches the
log's files.

May import: `broker.entry`, `broker.leader`, `broker.state`, `raft`, `remoting`.
"""
