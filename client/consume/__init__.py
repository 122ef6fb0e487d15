"""Consumers: push, pull, POP and lite pull, and the queues and locks of group members.

May import: `client`, `client.connection`, `client.produce`, `client.trace`, `remoting`.
"""
