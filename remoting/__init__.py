"""RocketMQ's remoting protocol: frames, headers, records, connections, and requests over them.

May import: nothing of ledgermq.
"""
