"""The command line: wires the packages' commands together and holds no logic of its own.

`cli` has the commands and their options; `cluster_commands`, `laboratory`, `store`, `quick_try` and
`doctor` hand over to the package that does the work; `endings` and `exit_codes` say how a command
ends.

May import: `broker`, `chaos`, `client`, `namesrv`, `raft`, `remoting`, `toxiproxy`, `verify`.
"""
