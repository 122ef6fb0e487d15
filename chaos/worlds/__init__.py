"""Worlds: a system and the links between its places, in one; see `chaos.worlds.world`.

`catalogue` builds them by name and says what each needs of the host.

May import: `chaos.cluster`, `chaos.links`, `chaos.systems`.
"""
