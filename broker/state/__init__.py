"""What every replica computes of the log: queues, groups, transactions, POP, timers, users. Pure.

May import: `broker.entry`.
"""
