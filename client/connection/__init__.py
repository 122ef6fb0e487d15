"""One client's connections: routes, leaders, heartbeats, retries, tasks; sends and their answers.

`instance` owns connections, routes (`routes`, `route_view`) and heartbeats of one client;
`broker_call` sends requests that follow a leader (`leaders`); `retry` decides what to do next, and
`answers` what an answer means; `send_codec` writes sends. `task_scope`, `lifecycle` and
`drain_gate` start and end what runs.

`retry` ends in a definite outcome or in "unknown": a timeout alone is never a failure.

May import: `client`, `remoting`.
"""
