"""Links: how bytes between two places are cut and slowed; the protocol is in `chaos.links.base`.

`proxies` has a Toxiproxy proxy on every link, `proxy_plan` says which proxy carries which link,
`link_probe` whether bytes pass there; `netns` acts on packets between namespaces; `none` is for
clusters whose links can't be changed.

May import: `chaos.cluster`, `chaos.netns`, `raft`, `remoting`, `toxiproxy`.
"""
