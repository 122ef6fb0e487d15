"""RocketMQ's remoting frames in the bytes of a proxied connection: found, named, counted. Pure.

`frame_start` measures a frame by its first bytes and reads its header; `frame_watch` follows what
leaves a link without holding it; `frame_splitter` cuts a stream into whole frames for a toxic;
`link_frames` matches answers to their requests and feeds `frame_counts`, which the API shows.

Nothing here changes a byte, and a stream that carries something else is left alone: it is `foreign`
from the first bytes that can't be a frame on.

May import: `remoting`, `remoting.protocol`.
"""
