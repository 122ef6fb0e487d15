"""One client's connections: routes, leaders, heartbeats, retries, tasks; sends and their answers.

May import: `client`, `remoting`.
"""
