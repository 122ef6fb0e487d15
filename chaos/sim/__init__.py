"""The simulator: the product's own classes in one thread, on virtual time, from one seed.

Time, network, disks, clocks, crashes, pauses and clients are played; what is tried is real.
`machine` is what everything runs on, `seed` what a seed decides before it begins, `cores` bare Raft
cores over real logs, `groups` whole groups of real brokers, name servers and clients, `ha` a master
and its slaves, `campaign` many seeds and the record of those that have passed with the sources as
they are. A seed that breaks a rule prints itself and the one command that replays it (decision 10).

It never draws from anything but the seed, and never calls a record of other sources passed.

May import: nothing of ledgermq.
"""
