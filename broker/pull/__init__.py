"""Pulls and offsets of consumers that own queues, and the queries about a queue's ends.

`pull` answers with stored bytes from a queue offset on, on any replica; `offsets` serves consumer
offsets and the bounds of queues, `queries` questions by time and by message id (decision 4).

Only a leader that has just proved itself says where a queue ends, or that an offset is wrong.

May import: `broker.entry`, `broker.queues`, `broker.request`, `raft`, `remoting`.
"""
