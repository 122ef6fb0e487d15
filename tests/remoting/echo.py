"""A server that answers what it is told to."""

from __future__ import annotations

from remoting.connections.connection import Connection
from remoting.connections.server import RemotingServer
from remoting.protocol.command import RemotingCommand


class Echo:
    """A server that answers what it is told to; code 1 echoes, code 2 never answers."""

    def __init__(self, **options: object) -> None:
        self.seen: list[RemotingCommand] = []
        self.closed: list[Connection] = []
        self.server = RemotingServer(
            "127.0.0.1",
            0,
            self.on_request,
            self.closed.append,
            **options,  # type: ignore[arg-type]  # passed through as they are
        )

    def on_request(self, connection: Connection, command: RemotingCommand) -> None:
        self.seen.append(command)
        match command.code:
            case 1:
                connection.send(command.response(0, "ok", command.ext_fields, command.body))
            case 3:
                connection.send(command.response(0, body=bytes(1_000_000)))
            case 4:
                connection.close()
