"""One experiment: from a scenario to a run directory, with faults, phases and progress.

`experiment` goes through the phases, `load` is the whole workload, `nemesis_runner` takes each
fault through its life on time, `majority_guard` has some of them wait, `quiesce` makes the cluster
whole and reads everything after the load, `phases` and `progress` tell of it. What it leaves is
judged elsewhere.

May import: `chaos.cluster`, `chaos.links`, `chaos.nemesis`, `chaos.nemesis.catalogue`,
  `chaos.recording`, `chaos.scenario`, `chaos.systems`, `chaos.workload`,
  `chaos.workload.parts`, `chaos.worlds`, `client`.
"""
