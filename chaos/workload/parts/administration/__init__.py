"""Topics and groups that come and go, their routes, and searches by key and by time.

Each of `deletions`, `groups`, `routes` and `searches` is a part.

May import: `chaos.cluster`, `chaos.recording`, `chaos.scenario`, `chaos.systems`,
  `chaos.workload`, `chaos.workload.parts.accounts`, `chaos.workload.parts.common`, `client`,
  `remoting`.
"""
