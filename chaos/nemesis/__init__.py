"""Faults: one module each, listed in `catalogue`, run by `chaos.experiment.nemesis_runner`.

May import: `chaos.cluster`, `chaos.worlds`.
"""
