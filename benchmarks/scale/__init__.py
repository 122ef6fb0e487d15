"""Runs of any size, made for measuring the verifier: what a sound cluster would have left behind.

`timeline` says what happens, stretch after stretch; `tables` writes it as a run directory. Nothing
of the broker, the laboratory or the verifier is used.
"""
