"""Producers: messages in, honest outcomes out; transactions, batches, request and reply.

May import: `client`, `client.connection`, `client.trace`, `remoting`.
"""
