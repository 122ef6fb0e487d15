"""Dumb models of the broker, fed with the committed log and with the answers that clients got.

`trace_rules` judges R1 to R12 from the nodes' Raft traces as they are written, `log_model` G2 to G5
from what is applied, with a model per subject beside it (locks, POP, order, timers, resets,
deletions, users, shapes of topics), `client_checker` and `answered_requests` G1, G6 and G7 from the
answers that clients got, `true_time` what is early or late.

The models know nothing of dedupe windows, overlays or half tables.

May import: `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `client`, `raft`, `remoting`.
"""
