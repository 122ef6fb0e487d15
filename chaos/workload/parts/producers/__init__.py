"""Producers beside the plain ones: sends in every form, timers, requests with replies, disputes.

`sends`, `timers`, `requests` and `disputes` are parts; the others hold what they expect.

May import: `chaos.recording`, `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`,
  `client`, `remoting`.
"""
