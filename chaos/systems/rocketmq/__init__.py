"""Apache RocketMQ as a system under test: brokers and name servers from its own jars.

`system` is the System; `jars` finds or fetches a release, `configurations` writes its files,
`launch` gives the command lines, `status` reads what a broker reports of itself.

May import: `chaos.cluster`, `chaos.systems`, `remoting`.
"""
