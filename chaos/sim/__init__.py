"""The simulator: whole clusters of the real Raft core and log in one thread, on virtual time.

Everything that is not decided by `raft.core.core`, `raft.log.segment_log` and `raft.log.hard_state`
is played here from one seed: time, network, disks, crashes, pauses, clients. After every step the
rules R1-R11 are checked on what all nodes have done so far. A seed that breaks a rule prints itself
and the one command that replays it.

Way through the package: `campaign` runs many seeds, `cluster` runs one, `options` draws what the
seed is made of, `node` is the shell around one core, `network` and `disk` are the world under it,
`nemesis` breaks them, `workload` proposes and reads, `invariants` judges.

May import: nothing of ledgermq.
"""
