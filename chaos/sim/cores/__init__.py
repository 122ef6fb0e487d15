"""Bare Raft cores over real logs, without brokers: fast, judged by R1 to R11 after every step.

`cluster` runs one seed; `node` is the shell around one core, nastier than the real one may be, with
`ready_effects`, `sync_rounds`, `snapshots` and `store` as its parts; `network` connects nodes,
`membership_nemesis` breaks them and changes members, `workload` proposes and reads, `invariants`
and `client_checker` judge.

May import: `chaos.sim.machine`, `chaos.sim.seed`, `raft`.
"""
