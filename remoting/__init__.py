"""RocketMQ's remoting protocol: frames, headers, records, connections, and requests over them.

Place in the data path: between every two processes of a cluster except the members of one Raft
group. The codecs (`frame`, `headers`, `message`, `route`, `fastjson`) do no IO; `connection`,
`server` and `rpc` are the asyncio shell.
"""
