"""Faults: one module each, listed in `catalogue`, run by `chaos.experiment.nemesis_runner`.

`base` says what a fault is: chosen, injected, seen to take effect, healed, seen to be healed;
`link_cut` is what all cuts of links share.

A fault is never counted by its intent: without a probe that saw its effect it is unknown.

May import: `chaos.cluster`, `chaos.links`, `chaos.systems`, `chaos.worlds`.
"""
