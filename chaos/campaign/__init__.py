"""Campaigns: many experiments of one file, what became of them, and the smallest that still fails.

`shrink` takes things away from a scenario that fails, `reductions` says which.

It judges nothing, and reads verdicts as files.

May import: `chaos.scenario`.
"""
