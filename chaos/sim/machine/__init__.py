"""Virtual machines: time, an event loop, TCP, a disk that forgets what was not synced.

`virtual_loop` and `scheduler` are time, `virtual_stdlib` what the product's modules see in place of
the real clock, randomness, threads and locks, `tcp` and `tcp_transport` the network, `disk` and
`disk_corruption` the disk, `garbling` a broken middleman.

Nothing here knows what runs on it.

May import: `broker`, `raft`, `remoting`.
"""
