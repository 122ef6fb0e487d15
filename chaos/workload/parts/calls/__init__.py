"""Every call of our client that an application may make, each with the answer that it must have.

`calls` is the part; each other module has the calls of one client or of one subject.

May import: `chaos.recording`, `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`,
  `chaos.workload.parts.operator`, `client`, `remoting`.
"""
