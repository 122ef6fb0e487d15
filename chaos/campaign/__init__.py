"""Campaigns: many experiments of one file, what became of them, and the smallest that still fails.

`plan` reads the file and lists the runs; `campaign` has them run one after the other or side by
side, `commands` is what runs one, in a process of its own; `progress` remembers what is done,
`retention` what stays on disk; `outcome` reads a run's manifest and verdict, `summary` and `junit`
report on all. `shrink` takes things away from a scenario that fails, `reductions` says which, and
`minimise` does that for a run.

It judges nothing, and reads verdicts as files.

May import: `chaos.cluster`, `chaos.experiment`, `chaos.scenario`, `remoting`.
"""
