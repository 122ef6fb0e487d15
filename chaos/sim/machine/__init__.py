"""Virtual machines: time, an event loop, TCP, a disk that forgets what was not synced.

`scheduler`, `virtual_clock` and `virtual_loop` are time, `virtual_host` is a process, and
`current_process` says which one runs; `virtual_stdlib` is what the product's modules see in place
of the real clock, randomness, threads and locks, `tcp` and `tcp_transport` the network, `disk` and
`disk_corruption` the disk, `garbling` a broken middleman.

Nothing here knows what runs on it.

May import: `broker`, `raft`, `remoting`.
"""
