"""A Toxiproxy of our own: TCP proxies whose links can be broken over an HTTP API.

`client` speaks to any Toxiproxy server, ours or Shopify's; `server` is ours, embedded in the
laboratory. Path of a byte: socket -> `connection.Side` -> `link.Link` -> stages of `toxics` -> the
other side's socket; without toxics a side writes straight to the other. `proxy` and
`proxy_collection` are what the API creates and changes; `event_log` is what happened to them;
`requests`, `toxic`, `address` and `gojson` are its values and its text, errors included.

Of the bytes that it carries the proxy knows one protocol, RocketMQ's remoting: `frames` finds where
its frames begin, for the toxics that hit whole frames. Everything else is bytes.

May import: `toxiproxy.frames`, `toxiproxy.toxics`.
"""
