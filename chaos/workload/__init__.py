"""The workload: clients that send, decide, read and commit, and record what they did and saw."""
