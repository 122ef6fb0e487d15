"""Sends: from a request to stored messages, their duplicates, send-backs and replies.

`send` reads the request, `plain_send` is its short way for messages with nothing special about
them, `store_send` takes records to the answer, `duplicates` finds whether a message is stored
already and where, `send_back` stores a message again that a consumer could not handle, `reply`
answers a message that was sent as a request. `envelope` are a message's properties, `send_names`
the fields of a send that are read.

The room never answers "stored" before the entry is committed, nor "surely not stored" where the
outcome is unknown.

May import: `broker.config`, `broker.delay`, `broker.entry`, `broker.leader`, `broker.request`,
  `broker.state`, `raft`, `remoting`.
"""
