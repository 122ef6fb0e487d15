"""Consumers of every kind: push, orderly, broadcast, lite pull, POP; retries, filters, resets.

`assignments`, `broadcast`, `filters`, `litepull`, `longpolls`, `orderly`, `pops`, `resets` and
`retries` are parts; the others hold what one of these does or expects.

May import: `chaos.recording`, `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`,
  `client`, `remoting`.
"""
