"""Message traces: what was sent and consumed, for RocketMQ's trace topic.

`tracer` gathers and sends them, `send_trace` is what a producer reports, `codec` RocketMQ's text.

May import: `client`, `client.connection`.
"""
