"""Access control: accounts, signatures, users and what they may do (RocketMQ's ACL 1.0 and 2.0).

May import: `broker.entry`, `broker.request`, `broker.state`, `remoting`.
"""
