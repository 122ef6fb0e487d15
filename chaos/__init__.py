"""The laboratory: starts clusters, lets clients work, breaks things, and records what happened.

`scenario` says what to do, `experiment` does it: on a `cluster` in a world of `worlds`, under the
load of `workload`, with the faults of `nemesis`; `recording` leaves the run directory behind.
`campaign` does many of them, and minimises what fails. `sim` is the other half: the product on
virtual time.

The laboratory judges nothing: that is `verify`'s business, which reads files only.

May import: nothing of ledgermq.
"""
