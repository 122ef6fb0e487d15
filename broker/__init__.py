"""The broker: RocketMQ's semantics as a deterministic state machine over a replicated log.

Requests come in through `broker.processor`, become proposals in `broker.proposer`, and take
effect in `broker.state_machine` once the log has committed them. `broker.server` is the shell.
"""
