"""Accounts and what they may do: made, changed and taken away while clients use them.

`accounts` is the part; `model` says what each account may do at any time, `file` and `policies`
change it by the two ways that there are, `rights` asks for what is allowed and what is not.

May import: `chaos.scenario`, `chaos.workload`, `chaos.workload.parts.common`, `client`,
  `remoting`.
"""
