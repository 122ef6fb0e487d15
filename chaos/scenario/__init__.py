"""Scenarios: what an experiment runs, for how long, and what it breaks.

`scenario` reads a TOML file; `ranges` refuses by name a value that is out of its range;
`scenario_text` writes one down again.

May import: `chaos.cluster`, `chaos.nemesis`, `chaos.nemesis.catalogue`, `broker`, `raft`,
  `remoting`.
"""
