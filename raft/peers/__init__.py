"""Connections between the nodes of a group: who may speak, frames, and how messages are written.

`handshake` proves that the peer holds the group's secret and which store it runs on. `wire` and
`wire_heads` turn messages into bytes and back, `frame_reader` cuts a byte stream into frames and
refuses one that did not arrive as it was sent. `transport` keeps a `peer_link` per peer and a
`connection` per dialled socket: a node sends only on connections that it dialled itself.

The room never interprets a message beyond its frame and fields.

May import: `raft`.
"""
