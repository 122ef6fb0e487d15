"""What a seed decides before it begins, the faults that it schedules, and what was come upon.

May import: `chaos.sim.machine`, `raft`.
"""
