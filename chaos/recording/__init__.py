"""What a run leaves: its history, traces as tables, the manifest; the run format's writing side.

May import: `chaos.cluster`.
"""
