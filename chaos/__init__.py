"""The laboratory: starts clusters, lets clients work, breaks things, and records what happened.

It writes run directories and judges nothing: that is `verify`'s business, which reads files only.

May import: nothing of ledgermq.
"""
