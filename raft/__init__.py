"""Raft, as the paper and the thesis have it, over a log that is RocketMQ's CommitLog.

Here stand the words that all rooms share: ids, messages, events, membership, configuration, and the
seams `storage` (what a disk is) and `replicated_log` (what a state machine sees of a log).

May import: nothing of ledgermq.
"""
