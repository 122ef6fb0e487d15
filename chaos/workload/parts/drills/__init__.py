"""Drills: series of requests to a broker, of which each has one right answer, known beforehand.

`drills` is the part, `kinds` the list of all kinds; each other module has the drills of one
subject, or what two of them share.

May import: `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`, `client`,
  `remoting`.
"""
