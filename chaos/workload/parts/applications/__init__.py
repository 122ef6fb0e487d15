"""What an application does with our client, and may rely on: one module a subject.

`applications` is the part, which runs all subjects in turn; `bench` has the clients, topics and
answers that they share.

May import: `chaos.links`, `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`,
  `chaos.workload.parts.operator`, `chaos.workload.talks`, `client`, `remoting`.
"""
