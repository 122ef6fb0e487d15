"""What is in the log: payloads, records, commands, and the values they are made of. Pure.

May import: `raft`.
"""
