"""Faults of processes: killed, paused, restarted, starved of what the kernel gives them.

`node_fault` is what they share; `chaos.nemesis.catalogue` joins their rows.

May import: `chaos.links`, `chaos.nemesis`, `chaos.systems`.
"""
