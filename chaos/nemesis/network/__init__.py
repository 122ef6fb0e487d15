"""Faults of the network: cuts, partitions, slow links, broken streams, single frames.

`link_fault` is what they share; the other modules choose links and say what happens to them.
`chaos.nemesis.catalogue` joins their rows.

May import: `chaos.links`, `chaos.nemesis`, `remoting`.
"""
