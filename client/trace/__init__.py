"""Message traces: what was sent and consumed, for RocketMQ's trace topic.

May import: `client`, `client.connection`.
"""
