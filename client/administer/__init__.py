"""The administrator's calls: topics, groups, offsets, progress, the cluster.

`admin` sends each call to the brokers and name servers that it concerns, and reads their answers.

May import: `client`, `client.connection`, `remoting`.
"""
