"""Where it is said: sockets that carry commands, servers, TLS, and how many connections may stay.

`server` listens, `connection` carries commands both ways, `rpc` holds one connection per address
for requests. `greeting`, with `tls`, `proxy_preamble` and `security_config`, handles what a
connection begins with: TLS, a PROXY preamble or plain text. `admission` and `open_files` bound how
many connections there may be.

The greeting never reads frames, and a PROXY preamble is believed only from networks that the
configuration names.

May import: `remoting`, `remoting.protocol`, `remoting.records`.
"""
