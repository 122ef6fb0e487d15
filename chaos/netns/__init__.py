"""Network namespaces of one run: a small network of veth pairs, and rules for its packets.

`plan` names addresses and interfaces, `rules` says what happens to packets of which flow,
`nf_tables` encodes the rules for the kernel, `namespaces` makes namespaces and opens sockets in
them, `network` is the network itself, `delay_line` delays frames as `departures` says, `echoes`
counts answered packets, `host_probe` says what this host lacks.

It knows nothing of faults, links or scenarios.

May import: `chaos.cluster`.
"""
