"""What parts of several rooms share: what a part is, senders, feeds, members, leaders' answers.

`part` says what a part is; `drill` holds what every series of questions with known answers needs.

May import: `chaos.recording`, `chaos.workload`, `client`, `remoting`.
"""
