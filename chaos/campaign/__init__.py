"""Campaigns: many experiments of one file, what became of them, and the smallest that still fails.

`plan` reads the file and lists the runs; `commands` runs one, in a process of its own; `outcome`
reads a run's manifest and verdict. `shrink` takes things away from a scenario that fails,
`reductions` says which, and `minimise` does that for a run.

It judges nothing, and reads verdicts as files.

May import: `chaos.cluster`, `chaos.experiment`, `chaos.scenario`, `remoting`.
"""
