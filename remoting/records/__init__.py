"""Message records, the same bytes in a log and in a pull's answer; properties, ids, bodies. Pure.

`message` is the codec that client and broker share, `properties` the properties block, `message_id`
the ids that RocketMQ makes of places and addresses, `sys_flag` the bits of the system flag,
`body_compression` what they say of the body.

Nothing here knows in which log or queue a record lies.

May import: `remoting`.
"""
