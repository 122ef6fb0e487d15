"""The workload: clients that send, decide, read and commit, and record what they did and saw.

May import: `chaos.recording`, `chaos.scenario`, `chaos.worlds`, `client`, `remoting`.
"""
