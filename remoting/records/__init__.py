"""Message records, the same bytes in a log and in a pull's answer; properties, ids, bodies. Pure.

May import: `remoting`.
"""
