"""Producers: messages in, honest outcomes out; transactions, batches, request and reply.

`producer` sends, `transaction_producer` adds halves, decisions and answers to check-backs,
`batches` cuts lists, `queue_choice` and `latency_faults` choose a queue, `request_reply` waits for
the answer to a message.

A message whose outcome is unknown is reported so, and is repeated only under its UNIQ_KEY.

May import: `client`, `client.connection`, `client.trace`, `remoting`.
"""
