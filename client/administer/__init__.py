"""The administrator's calls: topics, groups, offsets, progress, the cluster.

May import: `client`, `client.connection`, `remoting`.
"""
