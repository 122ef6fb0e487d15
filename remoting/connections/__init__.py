"""Where it is said: sockets that carry commands, servers, TLS, and how many connections may stay.

May import: `remoting`, `remoting.protocol`, `remoting.records`.
"""
