"""POP: consumers without queues of their own; the broker records which group holds which message.

`pop` delivers messages to a group, `pop_ack` and `batch_ack` end or prolong a holding, `pop_peek`
reads without taking, `ordered_queues` knows until when a queue in order is not to be had, `revive`
stores again what nobody acknowledged in time, `reader` finds what there is in a queue, `assignment`
assigns queues to consumers. Who holds what is replicated state
(`broker.state.pop_state`); this room is the leader's part of it (decision 13).

It never delivers a message before the entry that holds it is committed.

May import: `broker.entry`, `broker.queues`, `broker.request`, `broker.state`,
  `raft`, `remoting`.
"""
