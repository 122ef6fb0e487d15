"""One experiment: from a scenario to a run directory, with faults, phases and progress.

May import: `chaos.cluster`, `chaos.nemesis`, `chaos.recording`, `chaos.scenario`, `chaos.workload`,
  `chaos.worlds`, `client`.
"""
