"""Scenarios: what an experiment runs, for how long, and what it breaks.

May import: `chaos.cluster`, `chaos.nemesis`, `broker`, `raft`.
"""
