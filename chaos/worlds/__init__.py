"""Worlds: a system and the links between its places, in one; see `chaos.worlds.world`.

`host` is where an experiment runs: its loop, its clock, and how a world is made there.

May import: `chaos.cluster`, `chaos.links`, `chaos.systems`.
"""
