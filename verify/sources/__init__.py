"""Where a run lies and what it says of itself: its files, its manifest, the format's columns.

May import: nothing of ledgermq.
"""
