"""A Toxiproxy of our own: TCP proxies whose links can be broken over an HTTP API.

`client` speaks to any Toxiproxy server, ours or Shopify's; `server` is ours, embedded in the
laboratory. Path of a byte: socket -> `connection.Side` -> `link.Link` -> stages of `toxics` ->
the other side's socket; without toxics a side writes straight to the other.

May import: `toxiproxy.toxics`.
"""
