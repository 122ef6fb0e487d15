"""What a seed decides before it begins, the faults that it schedules, and what was come upon.

`core_options`, `group_options` and `ha_options` draw what a seed is made of (`seed_options` is what
all have), `schedule` is its list of faults, `nemesis` carries it out, `coverage` counts what was
really exercised: a rule that was never put to the test proves nothing.

May import: `chaos.sim.machine`, `raft`.
"""
