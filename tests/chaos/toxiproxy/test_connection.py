"""Who speaks first, and when: one connection between two fake sockets, in every order of events.

The sockets behave as those of uvloop: they deliver only while they read, but the first read comes
even where reading was paused in `connection_made`; they tell their protocol when their write buffer
is full and when it has drained. Whatever the order, once both peers are read from and written to,
every byte must have arrived: a side that nobody lets read on shows as bytes that never come.
"""

import asyncio
from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toxiproxy.connection import Connection, Side
from toxiproxy.frames.frame_counts import FrameCounts
from toxiproxy.toxic import Direction, Toxic

BUFFER_HIGH = 4

ACTIONS = st.sampled_from(
    [
        *("accept upstream", "upstream speaks", "client speaks"),
        *("client gets a read", "upstream gets a read", "client drains", "upstream drains"),
        *("add toxic", "remove toxic"),
    ]
)
NOOP = Toxic(
    name="t",
    type_name="noop",
    stream="downstream",
    direction=Direction.DOWNSTREAM,
    toxicity=1.0,
    attributes={},
)


class Socket:
    """A transport with a peer: what the peer sent and was not read yet, and what it got."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.sent: deque[bytes] = deque()
        self.buffer = bytearray()
        self.got = bytearray()
        self.reading = True
        self.first_read = True
        self.made = False

    def connect(self) -> None:
        self.made = True
        self.side.connection_made(self)  # type: ignore[arg-type]

    def deliver(self) -> None:
        """One read, where the socket reads and there is something."""
        if self.made and self.sent and (self.reading or self.first_read):
            self.first_read = False
            self.side.data_received(self.sent.popleft())

    def drain(self) -> None:
        """The peer reads all that was written."""
        was_full = len(self.buffer) > BUFFER_HIGH
        self.got += self.buffer
        self.buffer.clear()
        if was_full:
            self.side.resume_writing()

    def write(self, data: bytes) -> None:
        was_full = len(self.buffer) > BUFFER_HIGH
        self.buffer += data
        if len(self.buffer) > BUFFER_HIGH and not was_full:
            self.side.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, **limits: Any) -> None:
        del limits


async def run_connection(actions: list[str]) -> None:
    connection = Connection(
        seed="1",
        number=1,
        counts=FrameCounts(),
        on_accepted=lambda _: None,
        on_closed=lambda _: None,
    )
    client, upstream = Socket(connection.client), Socket(connection.upstream)
    said = {"client": bytearray(), "upstream": bytearray()}
    client.connect()
    tied = toxic = False

    def speak(name: str, peer: Socket) -> None:
        data = bytes([len(said[name]) % 256]) * 3
        said[name] += data
        peer.sent.append(data)

    for action in [*actions, "accept upstream", "tie links"]:
        match action:
            case "accept upstream" if not upstream.made:
                upstream.connect()
            case "tie links" if upstream.made and not tied:
                connection.connected({direction: [] for direction in Direction})
                tied = True
            case "upstream speaks":
                speak("upstream", upstream)  # the kernel may hold it before our accept
            case "client speaks":
                speak("client", client)
            case "client gets a read":
                client.deliver()
            case "upstream gets a read":
                upstream.deliver()
            case "client drains":
                client.drain()
            case "upstream drains":
                upstream.drain()
            case "add toxic" if tied and not toxic:
                connection.add(NOOP)
                toxic = True
            case "remove toxic" if toxic:
                connection.remove(NOOP)
                toxic = False
            case _:
                continue
        for one in (client, upstream):
            assert len(one.buffer) <= BUFFER_HIGH + 2 * 3 * 2, "what is held is bounded"
    for _ in range(2 * len(actions) + 2):
        client.deliver()
        upstream.deliver()
        client.drain()
        upstream.drain()
    assert client.got == said["upstream"]
    assert upstream.got == said["client"]
    assert client.reading
    assert upstream.reading


@given(early=st.lists(ACTIONS, max_size=20), late=st.lists(ACTIONS, max_size=20))
def test_either_side_may_speak_first_at_any_time(early: list[str], late: list[str]) -> None:
    asyncio.run(run_connection([*early, "tie links", *late]))


def test_the_upstream_speaks_between_its_accept_and_the_end_of_the_dial() -> None:
    early = ["upstream speaks", "accept upstream", "upstream gets a read"]
    asyncio.run(run_connection([*early, "tie links", "upstream speaks", "upstream gets a read"]))


def test_a_full_destination_still_pauses_a_side_that_was_held() -> None:
    early = ["accept upstream", *["upstream speaks", "upstream gets a read"] * 4, "tie links"]
    asyncio.run(run_connection([*early, *["upstream speaks", "upstream gets a read"] * 9]))
