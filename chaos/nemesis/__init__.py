"""Faults: one module each, listed in `chaos.nemesis.catalogue`, run by `chaos.nemesis.runner`."""
