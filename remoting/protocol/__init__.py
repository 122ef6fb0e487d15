"""What is said: codes, commands, headers, frames, routes, and the JSON dialect of Java peers. Pure.

`command` is the one value that travels, `frame` its bytes, `codes` the numbers of requests and
answers, `headers` their fields with types. `route`, `queue_table`, `fastjson` and `java_properties`
are RocketMQ's bodies; `acl_signature` signs a request.

Nothing here opens a socket, and nothing decides what a request means.

May import: `remoting`.
"""
