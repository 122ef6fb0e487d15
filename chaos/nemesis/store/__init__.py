"""Faults of stores: torn, rotten, stale, lost, wiped, old and foreign files of a killed node.

`store_fault` is what they share; `chaos.nemesis.catalogue` joins their rows.

May import: `chaos.links`, `chaos.nemesis`, `chaos.nemesis.process`, `chaos.systems`.
"""
