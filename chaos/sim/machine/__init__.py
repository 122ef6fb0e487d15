"""Virtual machines: time, an event loop, TCP, a disk that forgets what was not synced.

May import: `broker`, `raft`, `remoting`.
"""
