"""An operator at work: settings, members, offsets, relays and registrations changed under load.

`operator` is the part, which gives each subject its turn; each other module is a subject, or the
model of what its answers must be.

May import: `chaos.cluster`, `chaos.recording`, `chaos.scenario`, `chaos.systems`,
  `chaos.workload`, `chaos.workload.parts.common`, `client`, `remoting`.
"""
