"""Bare Raft cores over real logs, without brokers: fast, judged by R1 to R11 after every step.

May import: `chaos.sim.machine`, `chaos.sim.seed`, `raft`.
"""
