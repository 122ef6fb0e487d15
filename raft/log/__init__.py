"""The log on disk: segments, their table and index, recovery, damage, and durability.

Nothing here knows of elections; `hard_state` is here since no entry may be durable before its term.

May import: `raft`.
"""
