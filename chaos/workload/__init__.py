"""The workload: clients that send, decide, read and commit, and record what they did and saw.

Senders, readers and the drain are a module each; `actor` is a process of the history, which does
one thing at a time and is retired after an unknown outcome; `messages` makes the messages and reads
them back; `parts` are the kinds of work that a scenario switches on one by one; `talks` have what a
RocketMQ answers.

The workload never turns an unknown outcome into ok or fail.

May import: `chaos.recording`, `chaos.scenario`, `chaos.worlds`, `client`, `remoting`.
"""
