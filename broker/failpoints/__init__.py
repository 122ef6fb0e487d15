"""Failpoints: named points of a running broker where a laboratory makes it crash, wait or fail.

`catalogue` names the points and where each stands, `points` counts who passes and carries out what
is armed, `installation` puts the points into the code at a start with `--failpoints` and takes them
out again. `wall_clock` is a clock that is wrong. `undo_journal` remembers what no fsync covers yet,
and `faulty_disk` is a disk that fails, lies and hangs over that journal. `orders` is what a request
may say and what is answered, `switchboard` carries it out, `handler` is the request.

Without `--failpoints` nothing of this stands in any path: not even a branch. The room reaches into
others by name (`catalogue`), so it may name methods that it must not import; a test resolves all.

May import: `broker.request`, `raft`, `raft.log`, `remoting`.
"""
