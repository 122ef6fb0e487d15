"""Raft, as the paper and the thesis have it, over a log that is RocketMQ's CommitLog.

This folder holds the vocabulary that all rooms share: ids, messages, events, membership, the
configuration and its profiles, and two seams. `storage` says what a disk has to do for the log;
`replicated_log` says what a broker sees of a log, whatever replicates it. `fail_stop` is the edge
to the event loop: whatever is raised inside a node stops it. `stalls` reports what held a loop up.

Nothing in this package knows of topics, messages or clients.

May import: nothing of ledgermq.
"""
