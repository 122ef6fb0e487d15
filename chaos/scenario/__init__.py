"""Scenarios: what an experiment runs, for how long, and what it breaks.

`scenario` reads a TOML file, `fault_tables` the faults in it; `values` and `ranges` refuse by name
a value of another type or out of its range; `scenario_text` writes one down again.

May import: `chaos.cluster`, `chaos.nemesis`, `chaos.nemesis.catalogue`, `broker`, `raft`,
  `remoting`.
"""
