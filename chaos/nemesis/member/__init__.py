"""Faults of members: added, promoted, removed, replaced, leadership transferred, all under load.

`member_changes` has them; `chaos.nemesis.catalogue` joins their rows.

May import: `chaos.links`, `chaos.nemesis`, `chaos.systems`.
"""
